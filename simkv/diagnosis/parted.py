"""Why a prompt's content is new although much of it is old: text that changes, parts in another order, a history that was cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.workload.workload import Workload

CHANGING, ORDER, CUT = "changing text", "other order", "history cut"
WINDOW = 1 << 18
"""Tokens behind the parting that are looked at."""
STRETCH = 8
"""Tokens that must agree in a row to count as the same text."""
LEAST = 16
"""Tokens that must come back for a cause to be named."""
I8 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Parted:
    """Why two prompts part.

    Args:
        cause: ``changing text``, ``other order`` or ``history cut``.
        tokens: tokens behind the parting that both have all the same.
        sentence: what it is and what helps.
    """

    cause: str
    tokens: int
    sentence: str


def parted(w: Workload, req: int, other: int, shared: int) -> Parted | None:
    """Compare what follows the first ``shared`` tokens, which both requests begin with; ``None`` if nothing comes back.

    Args:
        other: an earlier request; its answer counts as well, since a history contains it.
    """
    mine, theirs = (_stretches(units(w, i, shared, upto)) for i, upto in ((req, _end(w, req, False)), (other, _end(w, other, True))))
    order = np.argsort(theirs, kind="stable")
    at = np.searchsorted(theirs[order], mine)
    found = np.flatnonzero(theirs[order[np.minimum(at, len(order) - 1)]] == mine) if len(order) else np.zeros(0, np.int64)
    if len(found) + STRETCH - 1 < LEAST:
        return None
    place = order[at[found]]
    name, before = w.id(other), int(found[0])
    tokens = len(found) + STRETCH - 1
    if shared >= int(w.num_prompt[other]):
        text = (
            f"It parts from {name} inside that one's answer and then goes on with a later piece of it: the history was cut, as clients do"
            " that drop the model's thinking. All behind the cut is computed again; send the answer back whole, or keep thinking short."
        )
        return Parted(CUT, tokens, text)
    if (np.diff(place) < 0).any():
        text = (
            f"It has the same parts as {name} in another order (tools, JSON keys, passages): {tokens:,} tokens that come back in vain."
            " Send them in a fixed order."
        )
        return Parted(ORDER, tokens, text)
    text = (
        f"Behind {before:,} other tokens it goes on like {name}: text that changes from request to request (a time, an id) spoils"
        f" {tokens:,} equal tokens behind it. Move it to the end."
    )
    return Parted(CHANGING, tokens, text)


def units(w: Workload, i: int, start: int, end: int) -> I8:
    """One number a token for tokens ``start … end-1`` of prompt and answer, equal where the content is equal; at most WINDOW."""
    parts, at = [np.zeros(0, np.int64)], 0
    end = min(end, start + WINDOW)
    for seed, first, n in w.runs[w.first_run[i] : w.first_run[i + 1]].tolist():
        low, high = max(start - at, 0), min(end - at, n)
        if low < high:
            if seed < 0:
                here = -1 - seed + first
                parts.append(w.tokens[here + low : here + high].astype(np.int64))
            else:
                name = np.uint64(((seed + 1 << 32) + first) & 0xFFFF_FFFF_FFFF_FFFF)  # seeds of generated tokens need all 64 bits
                parts.append((name + np.arange(low, high, dtype=np.uint64)).view(np.int64))
        at += n
    return np.concatenate(parts)


def _end(w: Workload, i: int, answer: bool) -> int:
    return int(w.num_prompt[i]) + (int(w.num_output[i]) if answer else 0)


def _stretches(tokens: I8) -> npt.NDArray[np.uint64]:
    """A number for every STRETCH tokens in a row: shape ``[len - STRETCH + 1]``, empty if there are fewer."""
    if len(tokens) < STRETCH:
        return np.zeros(0, np.uint64)
    out = np.zeros(len(tokens) - STRETCH + 1, np.uint64)
    with np.errstate(over="ignore"):
        for k in range(STRETCH):
            out = out * np.uint64(0x9E3779B97F4A7C15) + tokens[k : k + len(out)].astype(np.uint64)
            out ^= out >> np.uint64(29)
    return out
