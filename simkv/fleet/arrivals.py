"""Which request comes next: those with a time of their own, and those that follow the end of another one."""

from __future__ import annotations

import heapq

import numpy as np

from simkv.workload.workload import Workload


class Arrivals:
    """The requests that are still to come, in order of time (ties: order in the workload).

    Args:
        workload: requests; ones with an infinite time never come by themselves.
    """

    def __init__(self, workload: Workload) -> None:
        arrive = workload.arrive
        after = workload.after
        open_loop = np.arange(len(arrive)) if after is None else np.flatnonzero(after < 0)
        open_loop = open_loop[np.isfinite(arrive[open_loop])]
        order = open_loop[np.lexsort((open_loop, arrive[open_loop]))]
        self._times: list[float] = arrive[order].tolist()
        self._reqs: list[int] = order.tolist()
        self._next = 0
        self._later: list[tuple[float, int]] = []
        self._followers: dict[int, list[tuple[int, float]]] = {}
        if after is not None:
            for r in np.flatnonzero(after >= 0).tolist():
                self._followers.setdefault(int(after[r]), []).append((r, float(arrive[r])))
        self.watched: dict[int, float] = {}
        """Requests on their way that others follow, and the shortest time any of those takes."""

    def peek(self) -> float:
        """When the next one comes; infinity if none is known."""
        first = self._times[self._next] if self._next < len(self._times) else np.inf
        return min(first, self._later[0][0]) if self._later else first

    def pop(self) -> tuple[float, int]:
        """``(time, request)`` of the next one."""
        if self._next < len(self._times):
            first = (self._times[self._next], self._reqs[self._next])
            if not self._later or first <= self._later[0]:
                self._next += 1
                return first
        return heapq.heappop(self._later)

    def push(self, at: float, req: int) -> None:
        """A request comes at this time."""
        heapq.heappush(self._later, (at, req))

    def watch(self, req: int) -> None:
        """The request is on its way; others may wait for its end."""
        if req in self._followers:
            self.watched[req] = min(delay for _, delay in self._followers[req])

    def forget(self, req: int) -> None:
        """The request is on its way no more, and has not ended."""
        self.watched.pop(req, None)

    def ended(self, req: int, at: float) -> None:
        """The request has ended; those that follow come their time later."""
        self.watched.pop(req, None)
        for follower, delay in self._followers.pop(req, ()):
            self.push(at + delay, follower)

    def shortest_wait(self) -> float:
        """The shortest time from the end of a request on its way to an arrival that follows; infinity without any."""
        return min(self.watched.values()) if self.watched else np.inf

    def left(self) -> list[int]:
        """Requests that never came: nobody ended that they follow."""
        waiting = [r for _, r in self._later] + self._reqs[self._next :]
        return sorted(waiting + [r for followers in self._followers.values() for r, _ in followers])
