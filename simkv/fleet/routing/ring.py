"""A ring of hashed points, each owned by a worker, as every kind of consistent hashing has it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable


class Ring:
    """The points of the live workers in order.

    Args:
        points_of: the points of one worker; called once a worker.
    """

    def __init__(self, points_of: Callable[[int], Iterable[int]]) -> None:
        self._points_of = points_of
        self._of: dict[int, list[int]] = {}
        self._live: frozenset[int] = frozenset()
        self._points: list[int] = []
        self._owners: list[int] = []

    def set_live(self, order: Iterable[int]) -> None:
        """Rebuild the ring if other workers are live than before."""
        live = frozenset(order)
        if live == self._live:
            return
        self._live = live
        for worker in live - self._of.keys():
            self._of[worker] = list(self._points_of(worker))
        pairs = sorted((point, worker) for worker in live for point in self._of[worker])
        self._points = [point for point, _ in pairs]
        self._owners = [worker for _, worker in pairs]

    def at_or_after(self, value: int) -> int:
        """Owner of the first point that is not below a value, around the ring."""
        return self._owners[bisect_left(self._points, value) % len(self._owners)]

    def after(self, value: int) -> int:
        """Owner of the first point above a value, around the ring."""
        return self._owners[bisect_right(self._points, value) % len(self._owners)]
