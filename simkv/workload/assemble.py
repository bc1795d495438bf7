"""From a reader's columns to a Workload: order of arrival, limit, block ids to runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.workload.rows import Tally
from simkv.workload.workload import F8, I4, I8, OUTPUT_SEED, RUN


def order_of_arrival(arrive: F8, limit: int | None, tally: Tally) -> npt.NDArray[np.int64] | None:
    """Row numbers in order of arrival (ties in order of the file), cut at ``limit``; ``None`` if that is the file as it is.

    Unsorted rows and a limit are noted in the tally.
    """
    n = len(arrive)
    steps = np.diff(arrive)
    order = None
    if n > 1 and steps.min() < 0:
        late = int(np.count_nonzero(steps < 0))
        tally.notes.append(f"{late} row{'s' * (late > 1)} stood before an earlier arrival; the requests were sorted by time.")
        order = np.argsort(arrive, kind="stable")
    if limit is not None and limit < n:
        tally.notes.append(f"Limited to the first {limit} of {n} requests.")
        order = (np.arange(n) if order is None else order)[:limit]
    return order


def take(order: npt.NDArray[np.int64] | None, *columns: Any) -> tuple[Any, ...]:
    """Each column in that order."""
    return columns if order is None else tuple(None if c is None else c[order] for c in columns)


def take_lists(order: npt.NDArray[np.int64] | None, flat: Any, counts: I8) -> tuple[Any, I8]:
    """Lists stored flat, reordered: ``(flat, counts)``."""
    if order is None:
        return flat, counts
    begin = np.cumsum(counts) - counts
    picked = counts[order]
    offset = np.cumsum(picked) - picked
    index = np.repeat(begin[order] - offset, picked) + np.arange(int(picked.sum()))
    return flat[index], picked


def codes(texts: Sequence[str], *first: str) -> tuple[I4, tuple[str, ...]]:
    """Texts as numbers in order of appearance (``first`` are known from the start) and the names they stand for."""
    known = {text: i for i, text in enumerate(first)}
    numbers = np.fromiter((known.setdefault(t, len(known)) for t in texts), np.int32, len(texts))
    return numbers, tuple(known)


def dense(ids: I8) -> I8:
    """Ids that fit below ``OUTPUT_SEED``: as they are, or renamed in ascending order."""
    if len(ids) == 0 or int(ids.max()) < OUTPUT_SEED:
        return ids
    return np.unique(ids, return_inverse=True)[1].astype(np.int64)


def block_runs(
    seeds: I8, counts: I8, num_prompt: I8, num_output: I8, block: int | I8, outputs: I8 | None = None
) -> tuple[npt.NDArray[np.void], I8]:
    """Runs of prompts that are lists of blocks, each followed by its output.

    Args:
        seeds: content of every block, flat, shape ``[sum(counts)]``.
        counts: blocks of each request, ``ceil(num_prompt / block)``, shape ``[n]``.
        num_prompt: prompt tokens, shape ``[n]``; the last block of a request is as long as what remains.
        num_output: generated tokens, at least 1, shape ``[n]``.
        block: tokens per block, one for all or one for each request.
        outputs: content of each output; ``OUTPUT_SEED + i`` if not given.

    Returns:
        ``(RUN[sum(counts) + n], first_run[n + 1])``.
    """
    n = len(counts)
    first = np.zeros(n + 1, np.int64)
    np.cumsum(counts + 1, out=first[1:])
    runs = np.zeros(int(first[-1]), RUN)
    last = first[1:] - 1
    is_prompt = np.ones(len(runs), bool)
    is_prompt[last] = False
    runs["n"] = block if isinstance(block, int) else np.repeat(block, counts + 1)
    runs["seed"][is_prompt] = seeds
    runs["n"][last - 1] = num_prompt - block * (counts - 1)
    runs["seed"][last] = OUTPUT_SEED + np.arange(n) if outputs is None else outputs
    runs["n"][last] = num_output
    return runs, first


def with_tails(ids: I8, counts: I8, num_prompt: I8, block: int | I8) -> tuple[I8, I8]:
    """Block ids of formats that name full blocks only: what is left of each prompt becomes content of its own.

    Args:
        ids: dense block ids, flat; they stay below ``OUTPUT_SEED``.
        counts: ids of each request: ``num_prompt // block``, or rounded up if the last block has an id too.
        num_prompt: prompt tokens.
        block: tokens per block.

    Returns:
        ``(ids, counts)`` with one id for every started block.
    """
    need = -(-num_prompt // block)
    short = need - counts
    tails = int(short.sum())
    if tails == 0:
        return ids, counts
    out = np.empty(len(ids) + tails, np.int64)
    last = np.cumsum(need) - 1
    is_tail = np.zeros(len(out), bool)
    is_tail[last[short > 0]] = True
    out[~is_tail] = ids
    out[is_tail] = (int(ids.max()) + 1 if len(ids) else 0) + np.arange(tails)
    return out, need


def at_least_one(num_output: I8, tally: Tally, name: str) -> I8:
    """Zero outputs as one token, noted: an engine generates at least one."""
    zero = int(np.count_nonzero(num_output == 0))
    if zero:
        tally.notes.append(f"{zero} request{'s' * (zero > 1)} with {name} 0 replayed with 1 token: an engine generates at least one.")
        num_output = np.maximum(num_output, 1)
    return num_output
