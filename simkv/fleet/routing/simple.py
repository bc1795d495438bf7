"""Policies that look at nothing but the workers: round robin, random, least load, power of two choices."""

from __future__ import annotations

from itertools import groupby

from simkv.fleet.routing.policy import LOWER, Candidates, Decision, RoutingPolicy
from simkv.fleet.routing.scores import by_slot


class RoundRobin(RoutingPolicy):
    """A counter modulo the number of workers, in candidate order (Kubernetes' and nginx's default; sglang-router 0.3.2 ``round_robin``)."""

    name = "round-robin"
    product = "any load balancer"
    count = 0

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """The next one."""
        return Decision([c.order[self.count % len(c.order)]], "next")

    def commit(self, req: int, worker: int, now: float) -> None:
        """Count."""
        self.count += 1


class Random(RoutingPolicy):
    """Any worker, all equally likely."""

    name = "random"
    product = "any load balancer"

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """All of them."""
        return Decision(c.order, "random")


class LeastLoad(RoutingPolicy):
    """The worker with the fewest requests in flight; ties by lot."""

    name = "least-load"
    product = "any load balancer (nginx least_conn, Envoy LEAST_REQUEST over all hosts)"

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """All with the lowest count."""
        every = c.inflight.tolist()
        low = min([every[w] for w in c.order])
        allowed = [w for w in c.order if every[w] == low]
        return Decision(allowed, "least", scores=by_slot(c.inflight, c.order), prefers=LOWER)


class PowerOfTwo(RoutingPolicy):
    """Two different workers drawn at random, the one with fewer requests in flight wins; a tie goes to the one drawn first."""

    name = "power-of-two"
    product = "any load balancer (Envoy LEAST_REQUEST, nginx random two least_conn)"

    def decide(self, req: int, now: float, c: Candidates) -> Decision:
        """Those that can win, with their chances: of N(N-1)/2 pairs a worker wins against all that are busier, and half of its ties."""
        n, every = len(c.order), c.inflight.tolist()
        scores = by_slot(c.inflight, c.order)
        if n == 1:
            return Decision(c.order, "two choices", scores=scores, prefers=LOWER)
        wins, busier = {}, n
        for load, same in groupby(sorted([every[w] for w in c.order])):
            equal = len(list(same))
            busier -= equal
            wins[load] = busier + (equal - 1) / 2
        able = [w for w in c.order if wins[every[w]]]
        pairs = n * (n - 1) / 2
        return Decision(able, "two choices", scores=scores, prefers=LOWER, weights=[wins[every[w]] / pairs for w in able])
