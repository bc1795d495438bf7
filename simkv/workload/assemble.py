"""From a reader's columns to a Workload: order of arrival, limit, block ids to runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.workload.rows import Tally
from simkv.workload.workload import F8, I4, I8, OUTPUT_SEED, RUN, Workload, merge_runs, run_offsets

LARGEST_START = 1 << 30
"""Tokens of one content that packed blocks use: starts are 32-bit."""


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
        tally.notes.append(f"Limited to the first {limit:,} of {n:,} requests.")
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


def chunk_runs(seeds: I8, lengths: I8, counts: I8, rest: I8, num_output: I8, first_free: int) -> tuple[npt.NDArray[np.void], I8]:
    """Runs of prompts made of chunks of their own lengths, followed by what is left of the prompt, then the output.

    Args:
        seeds: content of every chunk, flat, shape ``[sum(counts)]``.
        lengths: tokens of every chunk.
        counts: chunks of each request, shape ``[n]``.
        rest: prompt tokens that belong to no chunk, content of their own (``first_free + i``), shape ``[n]``.
        num_output: generated tokens, shape ``[n]``.
        first_free: a content number no chunk uses.

    Returns:
        ``(RUN[k], first_run[n + 1])``.
    """
    n = len(counts)
    first = np.zeros(n + 1, np.int64)
    np.cumsum(counts + 2, out=first[1:])
    runs = np.zeros(int(first[-1]), RUN)
    last = first[1:] - 1
    is_chunk = np.ones(len(runs), bool)
    is_chunk[last] = is_chunk[last - 1] = False
    runs["seed"][is_chunk], runs["n"][is_chunk] = seeds, lengths
    runs["seed"][last - 1], runs["n"][last - 1] = first_free + np.arange(n), rest
    runs["seed"][last], runs["n"][last] = OUTPUT_SEED + np.arange(n), num_output
    runs, owner = merge_runs(runs, np.repeat(np.arange(n), counts + 2))
    return runs, run_offsets(owner, n)


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
    ids: I8, counts: I8, num_prompt: I8, num_output: I8, block: int | I8, *, packed: bool = False
) -> tuple[npt.NDArray[np.void], I8]:
    """Runs of prompts that are lists of blocks, each followed by its output.

    Args:
        ids: content of every block, flat, shape ``[sum(counts)]``.
        counts: blocks of each request, ``ceil(num_prompt / block)``, shape ``[n]``.
        num_prompt: prompt tokens, shape ``[n]``; the last block of a request is as long as what remains.
        num_output: generated tokens, at least 1, shape ``[n]``.
        block: tokens per block, one for all or one for each request.
        packed: describe block ``id`` as tokens ``id * block …`` of one long content instead of a content of its own, so that
            consecutive ids are one run. Worth it where ids mostly count up (a session that grows).

    Returns:
        ``(RUN[k], first_run[n + 1])`` with ``k = sum(counts) + n``, less if packed. The output of request ``i`` is content
        ``OUTPUT_SEED + i``.
    """
    n = len(counts)
    first = np.zeros(n + 1, np.int64)
    np.cumsum(counts + 1, out=first[1:])
    runs = np.zeros(int(first[-1]), RUN)
    last = first[1:] - 1
    is_prompt = np.ones(len(runs), bool)
    is_prompt[last] = False
    runs["n"] = block if isinstance(block, int) else np.repeat(block, counts + 1)
    stride = int(np.max(block))
    per_seed = LARGEST_START // stride
    runs["seed"][is_prompt] = ids // per_seed if packed else ids
    if packed:
        runs["start"][is_prompt] = ids % per_seed * stride
    runs["n"][last - 1] = num_prompt - block * (counts - 1)
    runs["seed"][last] = OUTPUT_SEED + np.arange(n)
    runs["n"][last] = num_output
    if not packed:
        return runs, first
    merged, owner = merge_runs(runs, np.repeat(np.arange(n), counts + 1))
    return merged, run_offsets(owner, n)


def lengths_only(
    name: str,
    format: str,
    arrive: F8,
    num_prompt: I8,
    num_output: I8,
    limit: int | None,
    tally: Tally,
    sessions: Sequence[str] | None = None,
) -> Workload:
    """A workload of a trace that knows no content: prompt ``i`` is content ``i``, shared with nobody."""
    order = order_of_arrival(arrive, limit, tally)
    arrive, num_prompt, num_output = take(order, arrive, num_prompt, num_output)
    n = len(arrive)
    tally.notes.append("The trace says nothing about content: no prompt shares anything with another, a hit rate means nothing.")
    session = None
    names: tuple[str, ...] = ()
    if sessions is not None:
        numbers, names = codes(sessions)
        (session,) = take(order, numbers)
    runs, first = block_runs(np.arange(n), np.ones(n, np.int64), num_prompt, num_output, num_prompt)
    return Workload(
        name,
        format,
        arrive - arrive[0],
        num_prompt.astype(np.int32),
        num_output.astype(np.int32),
        first,
        runs,
        session=session,
        sessions=names,
        prompts_have_content=False,
        report=tally.report(),
    )


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
