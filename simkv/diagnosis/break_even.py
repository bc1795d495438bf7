"""Is a prompt's KV faster loaded from host memory or computed again? Answered by the link and the step-time model."""

from __future__ import annotations

from dataclasses import dataclass

from simkv import text
from simkv.engine.step_time import StepTime, roofline
from simkv.errors import SettingsError
from simkv.hardware.batch_defaults import batch_defaults
from simkv.hardware.gpus import find_gpu
from simkv.hardware.kv_bytes import kv_bytes_per_token
from simkv.hardware.models import find_model
from simkv.hardware.tables import GB
from simkv.hardware.transfer import Link
from simkv.settings import EngineSettings

LOAD, RECOMPUTE = "load", "recompute"
SHORTEST = 128
MOST_LENGTHS = 16_384


@dataclass(frozen=True, slots=True)
class Cost:
    """A prompt whose KV lies completely in the host.

    Args:
        context: its tokens.
        load_s: seconds until its KV is loaded and its last token computed.
        recompute_s: seconds until all of it is computed.
    """

    context: int
    load_s: float
    recompute_s: float

    @property
    def load_tokens_per_s(self) -> float:
        """Prompt tokens per second if it is loaded."""
        return self.context / self.load_s

    @property
    def prefill_tokens_per_s(self) -> float:
        """Prompt tokens per second if it is computed."""
        return self.context / self.recompute_s

    @property
    def faster(self) -> str:
        """``load`` or ``recompute``."""
        return LOAD if self.load_s < self.recompute_s else RECOMPUTE


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where loading begins to win.

    Args:
        link: between one GPU and the host.
        bytes_per_token: KV bytes per token that go over that link.
        costs: at lengths that double.
        length: tokens from which loading wins at every longer length looked at; ``None`` if it does not win at the longest.
        longest: the longest length looked at.
        assumptions: one sentence for each thing the figures rest on.
    """

    link: Link
    bytes_per_token: int
    costs: tuple[Cost, ...]
    length: int | None
    longest: int
    assumptions: tuple[str, ...]

    @property
    def link_tokens_per_s(self) -> float:
        """Tokens per second the link alone moves."""
        return self.link.bandwidth / self.bytes_per_token

    @property
    def sentence(self) -> str:
        """The answer in words."""
        moves = (
            f"{self.link.name[0].upper() + self.link.name[1:]} moves the KV of {text.count(self.link_tokens_per_s)} tokens per second"
            f" ({self.link.bandwidth / GB:,.1f} GB/s, {self.bytes_per_token:,} bytes a token and GPU)"
        )
        if self.length is None:
            return f"{moves}: up to {self.longest:,} tokens computing a prompt again is faster than loading it."
        at = next((c for c in self.costs if c.context >= 4 * self.length), self.costs[-1])
        return (
            f"{moves}: from {self.length:,} tokens on loading a prompt is faster than computing it again;"
            f" at {at.context:,} tokens it takes {text.seconds(at.load_s)} instead of {text.seconds(at.recompute_s)}."
        )


def break_even(settings: EngineSettings, link: Link, *, longest: int | None = None, step_time: StepTime | None = None) -> BreakEven:
    """Compare loading and computing over prompt lengths.

    A load is always a step of its own: the engine learns at the end of a step that the bytes are there and then computes
    the last token (vllm 0.32, OffloadingConnector). A prompt is computed in steps of at most max_num_batched_tokens.

    Args:
        longest: tokens of the longest prompt (default: the model's longest).
        step_time: default: the roofline of the settings.

    Raises:
        SettingsError: unknown model or GPU, or ``longest`` is below one block.
    """
    model, time = find_model(settings.model), step_time or roofline(settings)
    most = longest if longest is not None else settings.max_model_len or model.max_position
    if most < settings.block_size:
        raise SettingsError("longest", most, f"at least one block of {settings.block_size} tokens")
    per_token = kv_bytes_per_token(model, settings.kv_cache_dtype, settings.tensor_parallel_size)
    chunked = settings.enable_chunked_prefill
    budget, _ = batch_defaults(find_gpu(settings.gpu), most, chunked, settings.max_num_seqs, settings.max_num_batched_tokens)
    whole_steps = [0.0]
    for done in range(0, most - budget + 1, budget):
        whole_steps.append(whole_steps[-1] + time.seconds([(done, budget)]))

    def cost(n: int) -> Cost:
        steps, rest = divmod(n, budget)
        computed = whole_steps[steps] + (time.seconds([(n - rest, rest)]) if rest else 0.0)
        return Cost(n, link.seconds(n * per_token) + time.seconds([(n - 1, 1)], 1), computed)

    unit = settings.block_size * -(-most // (settings.block_size * MOST_LENGTHS))
    length = None
    for n in range(most // unit * unit, 0, -unit):
        if cost(n).faster == RECOMPUTE:
            break
        length = n
    shown = [SHORTEST * 2**i for i in range(most.bit_length()) if SHORTEST * 2**i < most]
    said = (
        "One request alone: nothing else is computed and nothing else uses the link. A busy engine gains more by loading: it computes"
        " others meanwhile.",
        *link.assumptions,
        *time.assumptions,
    )
    return BreakEven(link, per_token, tuple(cost(n) for n in [*shown, most]), length, most, said)


def faster(bytes_per_token: float, bandwidth: float, prefill_tokens_per_s: float) -> tuple[float, str]:
    """Tokens per second a link moves, and whether to ``load`` or ``recompute`` beside a measured prefill rate.

    Both rates can be read off a running server: ``vllm:kv_offload_load_bytes_total`` over ``vllm:kv_offload_load_time_total``
    is the bandwidth.
    """
    rate = bandwidth / bytes_per_token
    return rate, LOAD if rate > prefill_tokens_per_s else RECOMPUTE
