"""round_robin of smg 1.13.0: a counter of its own for every list of candidates it has met.

A list, as it is ordered, keeps its counter when workers leave and come back. A new list's counter begins with the number of
lists met before it, so that many small sets do not all begin with their first worker. (Seen by driving it; each further
list began one further, lists with the same workers in another order counted as others.)
"""

from __future__ import annotations

from simkv.fleet.routing.policy import Candidates, Decision, RoutingPolicy


class SmgRoundRobin(RoutingPolicy):
    """A counter modulo the number of workers, per list of workers."""

    name = "smg-round-robin"
    product = "smg 1.13.0"

    def setup(self) -> None:
        """No lists met."""
        self.counters: dict[tuple[int, ...], int] = {}
        self.order: tuple[int, ...] = ()

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The next one."""
        self.order = tuple(c.order)
        count = self.counters.setdefault(self.order, len(self.counters))
        return Decision([c.order[count % len(c.order)]], "next")

    def commit(self, req: int, worker: int, now: float) -> None:
        """Count."""
        self.counters[self.order] += 1
