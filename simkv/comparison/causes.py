"""Why one run found more of a request's prompt than the other: folded from both event logs, request by request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.diagnosis.why import KeyHistory
from simkv.engine.vllm.chain import chain_keys, group_key
from simkv.events import layout as ev
from simkv.replay import Run

EDGE, EVICTED, CLEARED = "block edge", "evicted", "cleared"
NOT_INSERTED, LATER, CACHING_OFF = "not inserted yet", "came later", "no prefix cache"
NOT_USABLE, NEVER, NOT_EXAMINED, UNKNOWN = "cached but not usable", "never admitted", "not examined", "not known"
MOST_EXAMINED = 20_000


@dataclass(frozen=True, slots=True)
class Lost:
    """What one side did not find of one prompt although the other did.

    Args:
        request: its index.
        side: 0 if A found less, 1 if B did.
        cause: one of the constants above.
        tokens: how many of the other side's cached tokens this explains.
        writer: the request whose content it was, where known.
        taker: the request for which it was evicted.
        turn: when it was evicted, an index into the losing run's steps.
    """

    request: int
    side: int
    cause: str
    tokens: int
    writer: int | None = None
    taker: int | None = None
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Shift:
    """All of one cause: ``tokens`` that ``side`` (0: A, 1: B) did not find and the other did, over ``requests`` requests."""

    side: int
    cause: str
    tokens: int
    requests: int


class Causes:
    """Two runs of the same requests, asked why their hits differ. Both need their event logs for more than block edges."""

    def __init__(self, a: Run, b: Run) -> None:
        self.runs = (a, b)
        self._histories: list[KeyHistory | None] = [None, None]

    def differing(self) -> npt.NDArray[np.int64]:
        """Requests that found different numbers of tokens at their first admissions (0 where there was none), most tokens first."""
        a, b = (found(run) for run in self.runs)
        different = np.flatnonzero(a != b)
        return different[np.argsort(-np.abs(a - b)[different], kind="stable")]

    def lost(self) -> list[Lost]:
        """Every difference with its cause; the tokens add up to the difference of both runs' cached tokens."""
        different = self.differing()
        out = [part for i in different[:MOST_EXAMINED].tolist() for part in self.of(i)]
        a, b = (found(run) for run in self.runs)
        rest = different[MOST_EXAMINED:]
        out += [Lost(i, int(a[i] > b[i]), NOT_EXAMINED, abs(int(a[i] - b[i]))) for i in rest.tolist()]
        return out

    def of(self, request: int) -> list[Lost]:
        """Why one request's hits differ: what a block edge cuts off, and what the first block behind that came to."""
        hits = [int(found(run)[request]) for run in self.runs]
        if hits[0] == hits[1]:
            return []
        side = int(hits[1] < hits[0])
        run, most, least = self.runs[side], max(hits), min(hits)
        if np.isnan(run.requests["scheduled"][request]):
            return [Lost(request, side, NEVER, most - least)]
        if not run.resolved.enable_prefix_caching:
            return [Lost(request, side, CACHING_OFF, most - least)]
        whole = max(least, most // unit(run) * unit(run))
        out = [Lost(request, side, EDGE, most - whole)] if most > whole else []
        if whole > least:
            out.append(self._missing(request, side, least, whole - least))
        return out

    def _missing(self, request: int, side: int, hit: int, tokens: int) -> Lost:
        """What became, on the losing side, of the block that starts at token ``hit``."""
        mine, theirs = self._history(side), self._history(1 - side)
        if mine is None or request not in mine.admission:
            return Lost(request, side, UNKNOWN, tokens)
        admitted = mine.admission[request]
        events = mine.log.events
        stores = mine.stores(_key(self.runs[side], request, hit), admitted)
        if len(stores):
            gone = [(mine.removal(int(row), admitted), int(row)) for row in stores]
            lost = [(out, row) for out, row in gone if out is not None]
            if len(lost) < len(gone):
                return Lost(request, side, NOT_USABLE, tokens, int(events["req"][stores[-1]]))
            out, row = max(lost)
            cleared = int(events["kind"][out]) & ev.KIND_MASK == ev.CLEARED
            writer, taker = int(events["req"][row]), None if cleared else int(events["req"][out])
            return Lost(request, side, CLEARED if cleared else EVICTED, tokens, writer, taker, mine.turn(out))
        if theirs is None or request not in theirs.admission:
            return Lost(request, side, UNKNOWN, tokens)
        other = theirs.stores(_key(self.runs[1 - side], request, hit), theirs.admission[request])
        if not len(other):
            return Lost(request, side, UNKNOWN, tokens)
        writer = int(theirs.log.events["req"][other[0]])
        before = mine.admission.get(writer, admitted) < admitted
        return Lost(request, side, NOT_INSERTED if before else LATER, tokens, writer)

    def _history(self, side: int) -> KeyHistory | None:
        """Of the keys that can be asked for: those of the first blocks that one side found and the other did not."""
        run = self.runs[side]
        if self._histories[side] is None and run.log is not None:
            hits = [found(run) for run in self.runs]
            keys = [_key(run, i, int(min(hits[0][i], hits[1][i]))) for i in self.differing().tolist()]
            self._histories[side] = KeyHistory(run.log, np.array(keys, np.uint64))
        return self._histories[side]


def found(run: Run) -> npt.NDArray[np.int64]:
    """Tokens each request found cached at its first admission, i8[n]; 0 for one that was never admitted."""
    hits: npt.NDArray[np.int64] = np.where(np.isfinite(run.requests["scheduled"]), run.requests["hit"], 0).astype(np.int64)
    return hits


def unit(run: Run) -> int:
    """Tokens a hit is a multiple of: the block or page, for hybrid models what all groups agree on."""
    return int(run.resolved.scheduler_block_size)


def totals(lost: Sequence[Lost]) -> list[Shift]:
    """Sums by side and cause, most tokens first."""
    sums: dict[tuple[int, str], list[Lost]] = {}
    for part in lost:
        sums.setdefault((part.side, part.cause), []).append(part)
    shifts = [Shift(side, cause, sum(p.tokens for p in parts), len(parts)) for (side, cause), parts in sums.items()]
    return sorted(shifts, key=lambda s: (-s.tokens, s.side, s.cause))


def _key(run: Run, request: int, hit: int) -> int:
    """The key of the block that holds token ``hit`` of the prompt, in the first group of full attention."""
    s = run.resolved
    group = next((g for g, x in enumerate(s.groups) if x.type == "full"), 0)
    size = s.groups[group].block_size or s.block_size
    count = (hit // size + 1) * size // s.hash_block_size
    keys = chain_keys(run.workload, request, s.hash_block_size, lora_path=s.lora_path_in_key, upto=count)
    return int(keys[-1]) ^ group_key(group) if len(keys) else 0
