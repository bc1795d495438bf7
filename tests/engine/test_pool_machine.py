"""Anything may happen at any moment: requests come, time passes, clients leave, the cache is reset. The pool stays sound."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from simkv.engine.vllm.engine import VllmEngine
from simkv.engine.vllm.integrity import check_integrity, parent_keys
from simkv.events.folds.pool import pool_at
from simkv.workload.workload import ABORT, ACTION, RESET, RESET_RUNNING, Workload
from tests.engine.cases import Case, draw_case
from tests.folds.live import moment, same

NEVER = 1e9
MOST_ACTIONS = 12


class Pool(RuleBasedStateMachine):
    """One engine whose future is written while it runs.

    All requests exist beforehand and are timed for never; a rule that sends one gives it a time. At the end a second
    engine, which knows the whole story from the start, must end in the same state after one call.
    """

    @initialize(seed=st.integers(0, 1 << 20), first=st.integers(1, 5))
    def start(self, seed: int, first: int) -> None:
        r = Random(seed)
        case = draw_case(r)
        while case.workload.after is not None or case.workload.time_unit != "seconds" or len(case.workload) < 5:
            case = draw_case(r)
        self.case = case
        self.engine = self._engine(np.full(len(case.workload), NEVER), np.array([(NEVER, -1, RESET)] * MOST_ACTIONS, ACTION))
        self.engine.state = self.engine.state._replace(actions=np.array(self.engine.state.actions).view(np.recarray))
        self.parents = parent_keys(self.engine)
        self.sent = self.acted = 0
        self.latest = 0.0
        self.send(0.001, first)

    def _engine(self, arrive: np.ndarray, actions: np.ndarray) -> VllmEngine:
        w = self.case.workload
        changed = Workload(**{**{f: getattr(w, f) for f in w.__dataclass_fields__}, "arrive": arrive, "tie": None, "actions": actions})
        self.case = Case(changed, self.case.settings, self.case.step_time)
        return VllmEngine(changed, self.case.settings, self.case.step_time.record(), log=True)

    def _soon(self, delay: float) -> float:
        self.latest = max(self.latest, float(self.engine.counters.now) + 1e-9) + delay
        return self.latest

    @precondition(lambda self: self.sent < len(self.case.workload))
    @rule(delay=st.sampled_from([0.0, 0.001, 0.03]), count=st.integers(1, 4))
    def send(self, delay: float, count: int) -> None:
        for _ in range(min(count, len(self.case.workload) - self.sent)):
            at = self._soon(delay)
            request = self.engine.state.reqs[self.sent]
            request.arrive, request.tie = at, at + 1e-9 * self.sent
            self.sent += 1

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.3]))
    def advance(self, seconds: float) -> None:
        self.latest = max(self.latest, float(self.engine.counters.now) + seconds)
        self.engine.advance(min(self.latest, NEVER / 2))

    @precondition(lambda self: self.acted < MOST_ACTIONS)
    @rule(op=st.sampled_from([ABORT, ABORT, ABORT, RESET, RESET_RUNNING]), which=st.integers(0, 1 << 10))
    def act(self, op: int, which: int) -> None:
        action = self.engine.state.actions[self.acted]
        action.at, action.op, action.req = self._soon(0.001), op, which % max(self.sent, 1) if op == ABORT else -1
        self.acted += 1

    @invariant()
    def sound(self) -> None:
        check_integrity(self.engine, self.parents)
        c, reqs = self.engine.counters, self.engine.state.reqs
        assert int(c.finished + c.aborted + c.rejected + c.unfinished) <= self.sent
        assert (reqs["hit"] < np.maximum(reqs["num_prompt"], 1)).all()
        assert c.removed <= c.stored
        generated = self.engine.generated()
        assert (generated <= self.case.workload.num_output).all()
        assert (self.case.workload.num_prompt + generated <= max(self.case.settings.max_model_len, 1))[generated > 0].all()

    @invariant()
    def told_by_the_log(self) -> None:
        log = self.engine.event_log()
        assert log is not None
        if len(log.steps):
            same(pool_at(log, len(log.steps) - 1), moment(self.engine))

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        sliced = self.engine
        sliced.advance(NEVER / 2)
        whole = self._engine(np.array(sliced.state.reqs["arrive"]), np.array(sliced.state.actions).view(ACTION))
        whole.advance(NEVER / 2)
        for name in whole.counters.dtype.names or ():
            assert whole.counters[name] == sliced.counters[name], name
        assert whole.free_queue().tolist() == sliced.free_queue().tolist()


Pool.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPool = Pool.TestCase
