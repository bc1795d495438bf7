"""The compiled engine beside the reference, field by field after every half turn."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from simkv.engine.contract import STATUS
from simkv.engine.vllm.engine import DONE, PROCESSED, SCHEDULED, STALLED, VllmEngine
from simkv.engine.vllm.integrity import check_integrity, keys_of_block, oldest_blocks, parent_keys
from simkv.latency import inter_token_gaps
from tests.engine.cases import Case
from tests.engine.reference import Reference, Statistics
from tests.engine.reference_cache import Request

KINDS = ("new", "resumed", "continued")
REASON = {"scheduled": SCHEDULED, "processed": PROCESSED, "done": DONE, "stalled": STALLED}
STATISTICS = tuple(f.name for f in fields(Statistics))


class Side:
    """Both of them over one case. ``keys`` maps the engine's 64-bit keys to the reference's: it must stay one to one."""

    def __init__(self, case: Case, *, log: bool = True) -> None:
        self.case = case
        self.engine = VllmEngine(case.workload, case.settings, case.step_time.record(), log=log)
        self.reference = Reference(case.workload, case.settings, case.step_time)
        self.parents = parent_keys(self.engine)
        self.keys: dict[int, tuple[int, int]] = {}
        self.names: dict[tuple[int, int], int] = {}

    def half_turn(self) -> str:
        """Go on in both, compare, return the reference's word for where it stopped."""
        before = int(self.engine.counters.events)
        expected = self.reference.half_turn()
        got = self.engine.advance(pause=True)
        room = int(self.engine.counters.need_events)
        assert got == REASON[expected], f"{expected}: engine says {got}"
        if expected == "scheduled":
            self._before = before
        if expected == "processed" and self.engine.config.log:
            written = int(self.engine.counters.events) - self._before
            assert written <= room, f"{written} events in a turn for which {room} were reserved"
        self.same()
        check_integrity(self.engine, self.parents)
        return expected

    def run(self, most_half_turns: int = 2000) -> str:
        """Half turns until the end, or so many (preempting each other for ever is not the reference's to stop)."""
        for _ in range(most_half_turns):
            outcome = self.half_turn()
            if outcome in ("done", "stalled"):
                break
        else:
            outcome = "cut"
        self.same_requests()
        if outcome == "done":
            self.same_gaps()
        return outcome

    def same(self) -> None:
        """Scheduler, pool and statistics agree."""
        e, c, ref = self.engine.state, self.engine.counters, self.reference
        pool = ref.cache.pool
        assert ref.statistics.__dict__ == {name: int(c[name]) for name in STATISTICS}
        assert (pool.stored, pool.removed, len(pool.holders)) == (int(c.stored), int(c.removed), int(c.cached))
        assert ref.now == float(c.now)
        if ref.batch is not None:
            rows = e.rows[1 - int(c.batch)][: int(c.rows)]
            mine = [(x.request.index, x.kind, x.computed, x.n, x.sampled) for x in ref.batch.rows]
            assert mine == [(int(x.req), KINDS[x.kind], int(x.computed), int(x.n), bool(x.sampled)) for x in rows]
            victims = e.victims[: int(self.engine.steps[-1]["preempted"])].tolist()
            assert [x.index for x in ref.batch.preempted] == victims
        running = [int(e.slots[s].req) for s in e.running[: int(c.running)]]
        assert [x.index for x in ref.running] == running, "running order"
        assert [x.index for x in ref.waiting] == self.engine.waiting(), "waiting order"
        assert list(pool.free) == self.engine.free_queue().tolist(), "free queue"
        assert pool.ref == e.blocks["ref"][: pool.num_blocks].tolist(), "reference counts"
        for request, slot in zip(ref.running, e.running.tolist(), strict=False):
            self._same_request(request, slot)
        self._same_keys()

    def _same_request(self, request: Request, slot: int) -> None:
        e, groups = self.engine.state, int(self.engine.config.num_groups)
        mine = e.slots[slot]
        assert request.tables == tables(self.engine, slot), f"tables of {request.name}"
        assert request.registered == [int(e.lengths[slot * groups + g].cached) for g in range(groups)]
        assert (request.num_tokens, request.computed) == (int(mine.num_tokens), int(mine.computed))
        if self.engine.config.asynchronous:
            assert (request.in_flight, request.placeholders) == (int(mine.in_flight), int(mine.placeholders))

    def _same_keys(self) -> None:
        """Every block carries the same content, and lookups find the same block."""
        pool, found = self.reference.cache.pool, oldest_blocks(self.engine)
        assert len(found) == len(pool.holders)
        for key, blocks in pool.holders.items():
            block = next(iter(blocks))
            name = self.names.get(key)
            if name is None:
                name = keys_of_block(self.engine, block)[pool.keys[block].index(key)]
                assert self.keys.setdefault(name, key) == key, "two contents have one key"
                self.names[key] = name
            assert found.get(name) == block, f"a lookup of {key} finds another block"

    def same_requests(self) -> None:
        """What became of each request."""
        e, generated = self.engine.state.reqs, self.engine.generated()
        for request in self.reference.requests:
            i = request.index
            got = (STATUS[e[i].status], int(e[i].hit), int(e[i].preempted), int(generated[i]))
            assert got == (request.status, request.hit, request.preemptions, request.num_tokens - request.num_prompt), request.name
            times = [self.reference.arrive[i], request.scheduled, self.reference.first_token(request), request.finish]
            np.testing.assert_array_equal(times, [e[i].arrive, e[i].scheduled, e[i].first_token, e[i].finish], request.name)

    def same_gaps(self) -> None:
        """Inter-token gaps, written out."""
        gaps, counts = inter_token_gaps(self.engine.turns, self.engine.gaps)
        mine = np.concatenate([np.zeros(0), *(np.diff(x.token_times) for x in self.reference.requests)])
        np.testing.assert_array_equal(np.sort(mine), np.sort(np.repeat(gaps[counts > 0], counts[counts > 0])))


def tables(engine: VllmEngine, slot: int) -> list[Any]:
    """Block table of a slot, per group."""
    e, groups = engine.state, int(engine.config.num_groups)
    return [e.tables[slot * groups + g][: e.lengths[slot * groups + g].length].tolist() for g in range(groups)]
