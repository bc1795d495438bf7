"""Requests on their way: which replica has which, and what a router gets to see of it, in the order it happened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from simkv import jit
from simkv.engine.contract import FINISHED, WAITING

entry, _, _, _ = jit.decorators(Path(__file__).parent, Path(__file__).parent.parent / "engine" / "contract.py")

FIRST_TOKEN, ENDED = 0, 1
NOTICE = np.dtype((np.record, [("time", "f8"), ("req", "i4"), ("kind", "i4")]))
"""A router sees the first token, and the end, of each request it sent."""


@entry
def sweep(status, first_token, finish, flight, told, counts, now, notices):  # type: ignore[no-untyped-def]
    """Move what has ended by ``now`` out of ``flight``; write what a router sees by then. Returns the number of notices.

    ``counts[0]`` is how many of ``flight`` are used; ``told[r]`` whether the first token of ``r`` was reported.
    """
    found = 0
    i = 0
    while i < counts[0]:
        r = flight[i]
        # A batch that is still on the device at ``now`` may be processed already: its times lie ahead.
        if not told[r] and first_token[r] <= now:
            told[r] = True
            notices[found].time = first_token[r]
            notices[found].req = r
            notices[found].kind = FIRST_TOKEN
            found += 1
        if status[r] >= FINISHED and not finish[r] > now:
            notices[found].time = finish[r] if finish[r] <= now else now
            notices[found].req = r
            notices[found].kind = ENDED
            found += 1
            counts[0] -= 1
            flight[i] = flight[counts[0]]
        else:
            i += 1
    return found


@entry
def waiting_tokens(status, num_prompt, placed, flight, counts, out):  # type: ignore[no-untyped-def]
    """Prompt tokens of the requests that wait in each replica's queue, added to ``out``."""
    for i in range(counts[0]):
        r = flight[i]
        if status[r] <= WAITING:
            out[placed[r]] += num_prompt[r]


class InFlight:
    """The requests that were sent and have not ended.

    Args:
        reqs: the engines' request records (shared by all replicas of one engine).
    """

    def __init__(self, reqs: npt.NDArray[np.void]) -> None:
        n = len(reqs)
        self.fields = tuple(np.asarray(reqs[name]) for name in ("status", "first_token", "finish"))
        self.num_prompt = np.asarray(reqs["num_prompt"])
        self.flight = np.zeros(max(n, 1), np.int32)
        self.told = np.zeros(max(n, 1), np.bool_)
        self.counts = np.zeros(1, np.int64)
        self.notices = np.zeros(2 * max(n, 1), NOTICE)

    def send(self, req: int) -> None:
        """A request goes to a replica."""
        self.flight[self.counts[0]] = req
        self.told[req] = False
        self.counts[0] += 1

    def lose(self, reqs: list[int]) -> None:
        """These are in flight no more, without having ended (their replica died)."""
        used = self.flight[: self.counts[0]]
        kept = used[~np.isin(used, reqs)]
        self.counts[0] = len(kept)
        self.flight[: len(kept)] = kept

    def look(self, now: float) -> list[tuple[float, int, int]]:
        """``(time, request, FIRST_TOKEN or ENDED)`` of everything seen by ``now`` and not yet told, in order."""
        found = int(sweep(*self.fields, self.flight, self.told, self.counts, now, self.notices))
        if not found:
            return []
        rows: list[tuple[float, int, int]] = self.notices[:found].tolist()
        rows.sort()
        return rows

    def waiting_tokens(self, placed: npt.NDArray[np.int32], workers: int) -> npt.NDArray[np.int64]:
        """Prompt tokens that wait in each replica's queue, shape ``[workers]``."""
        out = np.zeros(workers, np.int64)
        waiting_tokens(self.fields[0], self.num_prompt, placed, self.flight, self.counts, out)
        return out
