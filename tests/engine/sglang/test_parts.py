"""Small parts against what they imitate."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from simkv.engine.sglang import shuffle
from simkv.engine.sglang.config import SglangConfig
from simkv.engine.sglang.engine import SglangEngine
from simkv.engine.sglang.state import requests
from simkv.engine.step_time import step_index
from simkv.workload.workload import RUN, Workload


def workload(prompts: list[int], outputs: list[int], arrive: list[float] | None = None, **more: np.ndarray) -> Workload:
    """Requests whose prompts are prefixes of one content."""
    n = len(prompts)
    runs = np.zeros(2 * n, RUN)
    runs["seed"][0::2], runs["n"][0::2] = 1, prompts
    runs["seed"][1::2], runs["n"][1::2] = 100 + np.arange(n), outputs
    times = np.zeros(n) if arrive is None else np.array(arrive)
    return Workload("w", "w", times, np.array(prompts, np.int32), np.array(outputs, np.int32), 2 * np.arange(n + 1), runs, **more)


@pytest.mark.parametrize("seed", [0, 1, 12345, 1 << 40])
def test_random_orders_are_python_s(seed: int) -> None:
    """40 waiting requests, one admitted a pass: each pass shuffles what is left, as random.shuffle does."""
    n = 40
    config = SglangConfig(capacity=4000, schedule_policy="random", random_seed=seed, prefill_max_requests=1, as_recorded=True)
    engine = SglangEngine(workload([5] * n, [9] * n), config, step_index().record(), log=False)
    python, queue = Random(seed), list(range(n))
    for _ in range(n):
        python.shuffle(queue)
        engine.advance(pause=True)
        assert engine.state.ordered[: len(queue)].tolist() == queue
        queue.pop(0)
        engine.advance(pause=True)


def test_more_than_one_table_of_random_numbers() -> None:
    interpreted = getattr(shuffle.next_word, "py_func", shuffle.next_word)
    state, python = np.array(Random(7).getstate()[1], np.uint32), Random(7)
    with np.errstate(over="ignore"):
        assert [int(interpreted(state)) for _ in range(1300)] == [python.getrandbits(32) for _ in range(1300)]


def test_the_intake_clips_to_pool_and_context() -> None:
    w = workload([20, 20, 90], [50, 500, 50])
    got = requests(w, SglangConfig(page_size=16, capacity=160, context_length=100))
    assert got["max_new"].tolist() == [50, 79, 9]
    assert got["num_output"].tolist() == [50, 79, 9]


def test_a_prompt_that_is_too_long_is_refused_by_the_server_only() -> None:
    w = workload([30, 10], [3, 3])
    server = SglangEngine(w, SglangConfig(capacity=40, max_input_len=30), step_index().record(), log=False)
    server.advance()
    assert (int(server.counters.rejected), int(server.counters.finished)) == (1, 1)
    other = SglangEngine(w, SglangConfig(capacity=40), step_index().record(), log=False)
    other.advance()
    assert (int(other.counters.rejected), int(other.counters.finished)) == (0, 2)


def test_a_whole_hit_still_computes_a_token() -> None:
    for page, hit in ((1, 47), (16, 32)):
        w = workload([48, 48], [2, 2], [0.0, 10.0])
        engine = SglangEngine(w, SglangConfig(page_size=page, capacity=512), step_index().record(), log=False)
        engine.advance()
        assert engine.state.reqs["hit"].tolist() == [0, hit]


def test_the_ratio_is_forgotten_by_an_idle_server_but_not_in_recorded_runs() -> None:
    w = workload([5, 5], [30, 30], [0.0, 100.0])
    ratios = []
    for recorded in (False, True):
        engine = SglangEngine(w, SglangConfig(capacity=512, as_recorded=recorded), step_index().record(), log=False)
        engine.advance(90.0)
        engine.advance()
        ratios.append(float(engine.counters.ratio))
    assert ratios[0] > ratios[1]
