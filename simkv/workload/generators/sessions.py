"""Conversations: sessions of several requests, each prompt beginning with all that was said before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.workload.generators.arrivals import Arrivals, arrivals
from simkv.workload.generators.build import OWN, SHARED, Piece, workload
from simkv.workload.generators.draws import MICRO, Draws
from simkv.workload.generators.params import Param, Values
from simkv.workload.workload import F8, I8, Workload

EXPECTED_S, EXPECTED_S_PER_TOKEN = 0.2, 0.02
"""What an answer is taken to last where its real end is not known beforehand: to write fixed times, and to order requests."""
PACING = Param(
    "pacing",
    "after the answer",
    "when the next request of a session comes: a pause after the answer before it has ended, or at times fixed beforehand"
    f" (an answer is then taken to last {EXPECTED_S} s plus {EXPECTED_S_PER_TOKEN} s a token)",
    choices=("after the answer", "fixed times"),
)


@dataclass(frozen=True, slots=True)
class Turns:
    """Requests in the order of their sessions: request ``i`` belongs to ``session[i]`` (ascending) and is ``first`` of it or not."""

    session: I8
    first: npt.NDArray[np.bool_]

    @property
    def opening(self) -> I8:
        """The first request of every session."""
        return np.flatnonzero(self.first).astype(np.int64)

    def running(self, values: F8 | I8) -> F8:
        """Sum of ``values`` over the session's requests before each request."""
        before = (np.cumsum(values) - values).astype(np.float64)
        return before - before[self.opening][self.session]


def turns(draws: Draws, requests: int, mean: float, cv: float) -> Turns:
    """Sessions of lognormal length (at least one request), as many as make ``requests``; the last one may be cut short."""
    lengths = np.zeros(0, np.int64)
    while lengths.sum() < requests:
        more = int((requests - lengths.sum()) / mean * 1.2) + 16
        lengths = np.concatenate([lengths, draws.lengths(f"turns {len(lengths)}", more, mean, cv)])
    session = np.repeat(np.arange(len(lengths)), lengths)[:requests].astype(np.int64)
    return Turns(session, np.diff(session, prepend=-1) > 0)


def conversations(
    name: str, draws: Draws, v: Values, t: Turns, *, shared: int, fresh: I8, output: I8, pause: F8, note: str = ""
) -> Workload:
    """A workload of sessions.

    A prompt is the tenant's shared text, then the session's own text so far. Prompt and answer of a request are
    consecutive stretches of the session's one content, so the next prompt contains both.

    Args:
        shared: tokens in front of every prompt, equal for all sessions of a tenant.
        fresh: new tokens of each request's prompt. ``output``: tokens of its answer.
        pause: seconds between the answer before and this request (not used for a session's first request, except in a
            closed loop of users, where the next session starts a think time after the last one's end).
    """
    before = t.running(fresh + output).astype(np.int64)
    timing, order = _timing(draws, v, t, output, pause)
    session = timing.user
    tenant = session % v["tenants"]
    own, start = OWN + session, before[order]
    pieces = [Piece(SHARED + tenant, shared), Piece(own, start + fresh[order])]
    answer = Piece(own, output[order], start + fresh[order])
    return workload(name, timing, pieces, output[order], tenant=tenant, tenants=v["tenants"], output_piece=answer, note=note)


def _timing(draws: Draws, v: Values, t: Turns, output: I8, pause: F8) -> tuple[Arrivals, I8]:
    """Arrivals in order of expected time, and that order over the requests in order of session."""
    opening, n = t.opening, len(t.session)
    sessions = len(opening)
    starts = arrivals(draws, sessions, {**v, "rate": v["rate"] * sessions / n})
    lasts: F8 = EXPECTED_S + EXPECTED_S_PER_TOKEN * output.astype(np.float64)
    offset = t.running(lasts) + t.running(np.where(t.first, 0.0, pause)) + np.where(t.first, 0.0, pause)
    expected = _expected_starts(starts, np.add.reduceat(lasts + np.where(t.first, 0.0, pause), opening))[t.session] + offset
    order = np.argsort(expected, kind="stable").astype(np.int64)
    if v["pacing"] == "fixed times":
        return Arrivals(np.rint(expected[order] * MICRO) / MICRO, None, t.session[order]), order
    index = np.arange(n, dtype=np.int64)
    after = np.where(t.first, -1, index - 1)
    arrive = np.where(t.first, starts.arrive[t.session], pause)
    if starts.after is not None:
        last_of_session = np.append(opening[1:], n) - 1
        after[opening] = np.where(starts.after >= 0, last_of_session[starts.after], -1)
    place = np.empty_like(order)
    place[order] = index
    return Arrivals(arrive[order], np.where(after >= 0, place[after], -1)[order], t.session[order]), order


def _expected_starts(starts: Arrivals, lasts: F8) -> F8:
    if starts.after is None:
        return starts.arrive
    out = starts.arrive.copy()
    users = int((starts.after < 0).sum())
    for low in range(users, len(out), users):
        here = slice(low, min(low + users, len(out)))
        out[here] += (out + lasts)[starts.after[here]]
    return out
