"""What makes a host tier useless or harmful: one function a cause, one sentence each: what, why, what to do.

The rules are vLLM 0.32's (OffloadingConnector and SimpleCPUOffloadConnector), seen in runs of the real scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv import text
from simkv.diagnosis.break_even import BreakEven

NATIVE, SIMPLE = "native", "simple"
I4 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Tier:
    """The tier beside the pool it serves.

    Args:
        connector: ``native`` or ``simple``.
        chunks: chunks (simple: blocks) that can hold something.
        block_size: tokens per GPU block.
        gpu_blocks: usable blocks of the GPU's pool.
        max_num_batched_tokens: most tokens computed, and so offered to the host, in one step.
        blocks_per_chunk: GPU blocks per chunk; the simple connector has no chunks.
        lazy: the simple connector copies what is about to be evicted, not what has been computed.
    """

    connector: str
    chunks: int
    block_size: int
    gpu_blocks: int
    max_num_batched_tokens: int
    blocks_per_chunk: int = 1
    lazy: bool = False

    @property
    def chunk_tokens(self) -> int:
        """Tokens per chunk."""
        return self.block_size * self.blocks_per_chunk

    @property
    def tokens(self) -> int:
        """Tokens the tier can hold."""
        return self.chunks * self.chunk_tokens


@dataclass(frozen=True, slots=True)
class Use:
    """What a run did with the tier.

    Args:
        stored, evicted: chunks that entered and left it.
        loaded: tokens that came back from it.
        refused: offers it had no room for (vllm:kv_offload_allocation_failure).
        hits: prompt tokens found on the device.
        queries: prompt tokens looked up there.
    """

    stored: int
    evicted: int
    loaded: int
    refused: int
    hits: int
    queries: int


def warnings(tier: Tier, num_prompt: I4, use: Use | None = None, break_even: BreakEven | None = None) -> tuple[str, ...]:
    """Every warning that applies, the gravest first.

    Args:
        num_prompt: tokens of each prompt, i4[n].
        use: what a finished run did; without it only what settings and prompts tell.
        break_even: for the run's model, GPU and link.
    """
    found: list[str | None] = [
        shorter_than_a_prompt(tier, num_prompt),
        lazy_without_end(tier),
        slower_than_computing(break_even, num_prompt),
    ]
    if use is not None:
        found += [stored_in_vain(tier, use), refused_offers(tier, use), heads_first(tier, use)]
    found += [below_a_chunk(tier, num_prompt), aligned_prompts(tier, num_prompt)]
    return tuple(f for f in found if f is not None)


def shorter_than_a_prompt(tier: Tier, num_prompt: I4) -> str | None:
    """The host cannot hold the longest prompt: whatever of it gets in, its beginning is not there when it comes again."""
    longest = int(num_prompt.max(initial=0))
    need = longest // tier.chunk_tokens
    if need <= tier.chunks:
        return None
    many = int(np.count_nonzero(num_prompt // tier.chunk_tokens > tier.chunks))
    are = "is" if many == 1 else "are"
    these = f"{text.counted(many, 'prompt')} of up to {longest:,} tokens {are} longer than the host tier ({tier.tokens:,} tokens)"
    if tier.connector == NATIVE and min(longest, tier.max_num_batched_tokens) // tier.chunk_tokens > tier.chunks:
        why = "an offer larger than the tier is never stored but is made again in every step"
    else:
        why = "the end of such a prompt pushes out its own beginning, without which the rest is never found"
    return f"{these}: {why}. Raise kv_offloading_size to at least {need / max(tier.chunks, 1):,.1f} times what it is."


def lazy_without_end(tier: Tier) -> str | None:
    """Lazy mode walks the device's free queue in circles when the host cannot hold what is cached there."""
    if not tier.lazy or tier.chunks >= tier.gpu_blocks:
        return None
    return (
        f"Lazy mode with fewer host blocks ({tier.chunks:,}) than GPU blocks ({tier.gpu_blocks:,}): once more is cached on the GPU than the"
        " host holds, the engine keeps copying in circles and never idles. Switch lazy_offload off or make the host as large as the pool."
    )


def slower_than_computing(found: BreakEven | None, num_prompt: I4) -> str | None:
    """Loading costs more time than it saves for most prompts of this traffic."""
    if found is None or not len(num_prompt):
        return None
    typical = int(np.median(num_prompt))
    if found.length is not None and typical >= found.length:
        return None
    since = f"only from {found.length:,} tokens on" if found.length is not None else "at no length"
    return (
        f"Loading from the host beats computing again {since}, and half of the prompts have {typical:,} tokens or fewer"
        f" ({found.link.bandwidth / 1e9:,.1f} GB/s): for most requests the tier costs time. Use a faster link or no tier."
    )


def stored_in_vain(tier: Tier, use: Use) -> str | None:
    """Stores without loads."""
    if use.stored == 0 or use.loaded > 0:
        return None
    if use.hits > 0:
        why = "what comes again is still on the GPU, so the tier would help only with a smaller pool or more traffic"
    elif tier.connector == SIMPLE and use.evicted > 0:
        why = "no prompt's beginning was there when it came again"
    else:
        why = "nothing came again"
    return f"The host tier stored {text.counted(use.stored, 'chunk')} and loaded none: {why}. Leave it out or make it larger."


def device_serves(total: int, on_device: int, in_host: int) -> tuple[int, str | None]:
    """Tokens a request still has to load, and a sentence if the device has so much of them that the tier saves nothing.

    Args:
        total: tokens of the prompt.
        on_device, in_host: how many of them, from the beginning, each tier has.
    """
    need = max(0, min(in_host, total) - on_device)
    if in_host == 0 or need > 0.01 * total:
        return need, None
    return need, (
        f"The GPU's prefix cache already serves {on_device:,} of {total:,} tokens; the host's {in_host:,} help only after the GPU has"
        " evicted its own, so the time to first token does not change."
    )


def refused_offers(tier: Tier, use: Use) -> str | None:
    """Offers the host had no room for."""
    if use.refused == 0:
        return None
    return (
        f"The host tier refused {text.counted(use.refused, 'offer')}: chunks that are being copied cannot make room, and an offer is stored"
        " completely or not at all. Raise kv_offloading_size."
    )


def heads_first(tier: Tier, use: Use) -> str | None:
    """The simple connector's order of eviction."""
    if tier.connector != SIMPLE or use.evicted == 0:
        return None
    return (
        f"The simple connector evicted {text.counted(use.evicted, 'block')}, and of each prompt the beginning first, without which the rest"
        " is never found. Use the native connector or a host that holds everything."
    )


def below_a_chunk(tier: Tier, num_prompt: I4) -> str | None:
    """Chunks coarser than what prompts share."""
    short = int(np.count_nonzero(num_prompt < tier.chunk_tokens))
    if tier.blocks_per_chunk == 1 or tier.connector != NATIVE:
        return None
    extra = f"; {text.counted(short, 'prompt')} {'is' if short == 1 else 'are'} shorter than that" if short else ""
    return (
        f"A chunk has {tier.chunk_tokens:,} tokens: a host hit that adds less than a whole chunk to the GPU's hit counts as nothing{extra}."
        " Lower blocks_per_chunk if requests share less."
    )


def aligned_prompts(tier: Tier, num_prompt: I4) -> str | None:
    """Prompts that end with a block: the last one is loaded although the GPU has it."""
    if tier.connector != NATIVE or tier.blocks_per_chunk != 1 or not len(num_prompt):
        return None
    many = int(np.count_nonzero(num_prompt % tier.block_size == 0))
    if many < 0.1 * len(num_prompt):
        return None
    return (
        f"{text.counted(many, 'prompt')} of {len(num_prompt):,} end exactly with a block: when such a prompt is still on the GPU, its last"
        f" block is loaded from the host nevertheless, which costs a step instead of {tier.block_size} tokens of computing. Harmless"
        " unless most prompts repeat exactly while they are there; then lengths that do not end with a block avoid it."
    )
