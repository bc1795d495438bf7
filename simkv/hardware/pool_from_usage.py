"""How large a pool is, from how fast its usage creeps up while one request generates; and whether that is a leak."""

from __future__ import annotations

from dataclasses import dataclass

from simkv.errors import SettingsError
from simkv.hardware.tables import GIB

ALIKE = 0.25
"""Share by which the inferred pool may miss the computed one for the growth to be explained by generated tokens."""


@dataclass(frozen=True, slots=True)
class PoolFromUsage:
    """A pool seen from outside.

    Args:
        tokens: generated tokens ÷ growth of usage: what the KV cache holds.
        bytes_per_token: KV bytes per token over all layers on one GPU.
        expected_tokens: what model and GPU make one expect; ``None`` if that is not known.
    """

    tokens: float
    bytes_per_token: int
    expected_tokens: int | None = None

    @property
    def gib(self) -> float:
        """The pool's memory in GiB."""
        return self.tokens * self.bytes_per_token / GIB

    @property
    def explained(self) -> bool | None:
        """Whether generated tokens alone explain the growth; ``None`` where no pool is expected."""
        if self.expected_tokens is None:
            return None
        return abs(self.tokens / self.expected_tokens - 1.0) <= ALIKE

    @property
    def sentence(self) -> str:
        """For people."""
        seen = f"The growth of usage fits generated tokens in a pool of {self.tokens:,.0f} tokens ({self.gib:.1f} GiB)"
        if self.explained is None:
            return f"{seen}; compare it with `GPU KV cache size` in the start-up log."
        if self.explained:
            return (
                f"{seen}, about what model and GPU leave ({self.expected_tokens:,}): a runaway generation, not a leak. Limit max_tokens, or"
                " look for a request that never stops."
            )
        return (
            f"{seen}, but model and GPU leave {self.expected_tokens:,}: generated tokens do not explain it. Look for other requests, or"
            " for blocks that are never given back."
        )


def pool_from_usage(
    usage_start: float, usage_end: float, seconds: float, tokens_per_s: float, bytes_per_token: int, expected_tokens: int | None = None
) -> PoolFromUsage:
    """The pool behind a slope of ``vllm:kv_cache_usage_perc`` (0 … 1) while nothing but generation adds blocks.

    Args:
        seconds: between the two readings.
        tokens_per_s: generated meanwhile, over all requests (``rate(vllm:generation_tokens_total)``).

    Raises:
        SettingsError: usage did not rise, or nothing was generated.
    """
    if not 0 <= usage_start < usage_end <= 1:
        raise SettingsError(
            "usage_end", usage_end, f"more than usage_start={usage_start}, at most 1", "Only a rise says how large the pool is"
        )
    if not (seconds > 0 and tokens_per_s > 0):
        raise SettingsError("tokens_per_s", tokens_per_s, "more than 0, over more than 0 seconds")
    return PoolFromUsage(seconds * tokens_per_s / (usage_end - usage_start), bytes_per_token, expected_tokens)
