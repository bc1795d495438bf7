"""Prompts that share less than one block: no bug, and not the same as sharing nothing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from simkv.workload.workload import Workload

MOST_TOKENS = 4_000_000
"""Written-out tokens looked at; a workload with more in its first blocks is not examined."""


@dataclass(frozen=True, slots=True)
class FirstBlock:
    """What prompts of one namespace (salt and adapter) share before the first block ends.

    Args:
        block: tokens of a block.
        whole: whether any two prompts share a whole first block: then sharing is not confined to less.
        longest: tokens of the longest common beginning, at most one block.
        tokens: tokens that repeat what another prompt began with, those of the first to send them not counted.
        prompt_tokens: tokens of all prompts.
    """

    block: int
    whole: bool
    longest: int
    tokens: int
    prompt_tokens: int

    @property
    def share(self) -> float:
        """Share of the prompt tokens that blocks of one token would find; only what lies in the first block counts."""
        return self.tokens / self.prompt_tokens

    @property
    def sentence(self) -> str | None:
        """For people; ``None`` unless all that is shared is less than a block."""
        if self.whole or not self.tokens:
            return None
        return (
            f"Prompts share up to {self.longest:,} tokens at their beginning, less than one block of {self.block:,}, so nothing can be"
            f" found: neither a bug nor missing reuse. Blocks of {1 << (self.longest.bit_length() - 1):,} tokens or fewer would find up to"
            f" {self.share:.1%} of all prompt tokens."
        )


def first_block(w: Workload, block: int) -> FirstBlock | None:
    """How the first blocks of the prompts relate; ``None`` if there is nothing to examine or too much of it."""
    if not len(w) or not w.prompts_have_content:
        return None
    prompt_tokens = int(w.num_prompt.sum(dtype=np.int64))
    if _whole_run_repeats(w, block):
        return FirstBlock(block, True, block, 0, prompt_tokens)
    if (w.runs["seed"] < 0).any() and int(np.minimum(w.num_prompt, block).sum(dtype=np.int64)) > MOST_TOKENS:
        return None
    # In sorted order the tokens two neighbours begin with are all the repeats there are: what a tree of the prompts saves.
    heads = sorted(_head(w, i, block) for i in range(len(w)))
    equal = [_common(a, b) for a, b in pairwise(heads)]
    longest = max(equal, default=0)
    return FirstBlock(block, longest >= block, longest, sum(equal), prompt_tokens)


def _whole_run_repeats(w: Workload, block: int) -> bool:
    """Whether two prompts of a namespace begin with the same run of at least a block; the common case, without a loop."""
    first = w.runs[w.first_run[:-1]]
    none = np.zeros(len(w), np.int64)
    columns = [first["seed"], first["start"], none if w.salt is None else w.salt, none - 1 if w.lora is None else w.lora]
    here = (first["n"] >= block) & (first["seed"] >= 0) & (w.num_prompt >= block)
    rows = np.stack([np.asarray(c, np.int64)[here] for c in columns], axis=1)
    return len(np.unique(rows, axis=0)) < len(rows)


def _head(w: Workload, i: int, block: int) -> tuple[Any, ...]:
    """Namespace and the runs of the first block; explicit tokens are runs of one."""
    salt = int(w.salt[i]) if w.salt is not None else 0
    lora = int(w.lora[i]) if w.lora is not None else -1
    left, out = min(block, int(w.num_prompt[i])), []
    for seed, start, n in w.runs[w.first_run[i] : w.first_run[i + 1]].tolist():
        n = min(n, left)
        if seed < 0:
            here = -1 - seed + start
            out += [(-1, token, 1) for token in w.tokens[here : here + n].tolist()]
        else:
            out.append((seed, start, n))
        left -= n
        if not left:
            break
    return salt, lora, tuple(out)


def _common(a: tuple[Any, ...], b: tuple[Any, ...]) -> int:
    if a[:2] != b[:2]:
        return 0
    total = 0
    for (seed, start, n), (seed_b, start_b, n_b) in zip(a[2], b[2], strict=False):
        if (seed, start) != (seed_b, start_b):
            break
        total += min(n, n_b)
        if n != n_b:
            break
    return total
