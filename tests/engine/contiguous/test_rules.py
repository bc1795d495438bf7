"""Each rule once, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simkv.engine.contiguous.engine import ContiguousEngine
from simkv.engine.contiguous.resolve import asked_tokens, power_of_two, resolve
from simkv.engine.contract import DONE
from simkv.engine.step_time import linear, step_index
from simkv.errors import SettingsError
from simkv.events.folds.block_map import FREE, IN_USE, RESERVED, STATE_MASK, block_history
from simkv.events.folds.pool import PoolFold
from simkv.replay import Run, replay
from simkv.settings import ContiguousSettings
from simkv.workload.workload import ABORT, ACTION, Workload
from tests.engine.contiguous.cases import requests

STEP = linear(1.0, 0.0, 0.0)


def run(workload: Workload, step_time: Any = STEP, **settings: Any) -> Run:
    """A replay with one-token cells unless said otherwise."""
    return replay(workload, ContiguousSettings(**{"block_size": 1, **settings}), step_time)


def engine(workload: Workload, step_time: Any = STEP, **settings: Any) -> ContiguousEngine:
    s = resolve(ContiguousSettings(**{"block_size": 1, **settings}), workload)
    return ContiguousEngine(workload, s, step_time.record(), log=True)


def test_what_each_scheme_reserves() -> None:
    prompt, output = np.array([100, 7, 1000]), np.array([25, 32, 1100])
    assert asked_tokens("max", prompt, output, 2048).tolist() == [2048, 2048, 2048]
    assert asked_tokens("pow2", prompt, output, 4096).tolist() == [132, 39, 3048], "25 tokens reserve 32"
    assert asked_tokens("pow2", prompt, output, 2048).tolist() == [132, 39, 2048], "never more than the model takes"
    assert asked_tokens("oracle", prompt, output, None).tolist() == [125, 39, 2100]
    assert power_of_two(np.array([1, 2, 3, 4, 5, 1 << 40, (1 << 40) + 1])).tolist() == [1, 2, 4, 4, 8, 1 << 40, 1 << 41]


def test_a_pool_of_the_papers_size_holds_seven_requests_of_the_longest_length() -> None:
    """OPT-13B on an A100 with 40 GB has 15.7 thousand slots; figure 13 of the paper shows 7.00 requests in Orca (Max)."""
    r = run(requests([100] * 9, [50] * 9), block_size=16, num_gpu_blocks=1 + 15_700 // 16, max_model_len=2048)
    assert r.steps["running"][0] == 7
    assert r.steps["waiting"][0] == 2


def test_first_come_first_served_even_if_a_later_one_would_fit() -> None:
    """16 cells, exact lengths: 10 run, 8 wait for room, and the 2 behind them wait too."""
    e = engine(requests([5, 4, 1], [5, 4, 1]), num_gpu_blocks=17, reservation="oracle", allocator="first_fit", max_model_len=16)
    e.advance(pause=True)
    assert e.waiting() == [1, 2]
    assert e.pieces() == [(0, 10, 0), (10, 6, -1)]


def test_buddy_splits_rounds_and_joins() -> None:
    e = engine(requests([3, 1], [2, 1], [0.0, 0.0]), num_gpu_blocks=17, reservation="oracle", max_model_len=16)
    e.advance(pause=True)
    assert e.pieces() == [(0, 8, 0), (8, 2, 1), (10, 2, -1), (12, 4, -1)], "5 become 8, 2 stay 2"
    assert e.advance() == DONE
    assert e.pieces() == [(0, 16, -1)]


def test_first_fit_leaves_holes_that_are_free_and_no_use() -> None:
    """Pieces of 3, 6 and 3 fill the pool; the outer two end, and 6 free cells do not hold a piece of 5."""
    workload = requests([1, 1, 1, 4], [2, 5, 2, 1], [0.0, 0.0, 0.0, 0.5])
    e = engine(workload, num_gpu_blocks=13, reservation="oracle", allocator="first_fit", max_model_len=6)
    e.advance(3.0)
    assert e.pieces() == [(0, 3, -1), (3, 6, 1), (9, 3, -1)]
    assert e.waiting() == [3]
    assert e.free_queue().tolist() == [1, 2, 3, 10, 11, 12]
    assert e.advance() == DONE
    assert e.state.reqs["scheduled"][3] == 5.0


def test_a_static_batch_ends_together_and_pads() -> None:
    """Prompts 2 and 4, outputs 3 and 1: the prompt of 2 is padded by 2, the short answer is computed on for 2 steps."""
    e = engine(requests([2, 4], [3, 1]), num_gpu_blocks=33, batching="static", max_model_len=16)
    assert e.advance() == DONE
    x = e.state.reqs
    assert x["first_token"].tolist() == [1.0, 1.0]
    assert x["finish"].tolist() == [3.0, 3.0], "the answer of one step is held back until the batch ends"
    assert (int(e.counters.tokens), int(e.counters.padding)) == (2 + 4 + 2, 2 + 2)


def test_a_static_batch_lets_nobody_in() -> None:
    e = engine(requests([2, 2], [4, 1], [0.0, 0.5]), num_gpu_blocks=33, batching="static", max_model_len=16)
    assert e.advance() == DONE
    assert e.state.reqs["scheduled"].tolist() == [0.0, 4.0]


def test_padding_costs_time() -> None:
    per_token = linear(0.0, 1.0, 1.0)
    e = engine(requests([2, 4], [3, 1]), per_token, num_gpu_blocks=33, batching="static", max_model_len=16)
    assert e.advance() == DONE
    assert e.steps["duration"].tolist() == [8.0, 2.0, 2.0]


def swapped(**more: Any) -> ContiguousEngine:
    """One place; the second request arrives at 0.5 and pushes the first out after waiting two seconds."""
    settings = {"num_gpu_blocks": 17, "max_model_len": 16, "preemption_mode": "swap", "swap_patience_s": 2.0, "swap_gb_s": 1.0}
    return engine(requests([4, 4], [9, 2], [0.0, 0.5]), **{**settings, **more})


def test_a_whole_sequence_moves_out_and_back() -> None:
    """Llama-3.1-8B has 131,072 bytes a token: 6 tokens take 0.786 ms at 1 GB/s, and 20 us more."""
    e = swapped()
    assert e.advance() == DONE
    x, one_way = e.state.reqs, 6 * 131072 / 1e9 + 20e-6
    assert x["preempted"].tolist() == [1, 0]
    assert x["scheduled"][1] == pytest.approx(3.0 + one_way), "steps end at 1, 2, 3; then the memory has to empty first"
    assert x["finish"][1] == pytest.approx(5.0 + one_way)
    assert x["finish"][0] == pytest.approx(5.0 + 2 * one_way + 6.0), "three tokens before, six after"
    assert e.generated().tolist() == [9, 2]
    assert int(e.counters.tokens) == 4 + 8 + 4 + 1, "nothing is computed twice"


def test_no_swap_without_host_memory_or_patience() -> None:
    for more in ({"swap_space_gib": 0.0}, {"swap_patience_s": 100.0}, {"preemption_mode": "none"}):
        e = swapped(**more)
        assert e.advance() == DONE
        assert int(e.counters.preemptions) == 0
        assert e.state.reqs["scheduled"].tolist() == [0.0, 9.0]


def test_a_run_says_what_was_padded_and_moved() -> None:
    moving = {"num_gpu_blocks": 17, "max_model_len": 16, "preemption_mode": "swap", "swap_patience_s": 2.0, "swap_gb_s": 1.0}
    moved = run(requests([4, 4], [9, 2], [0.0, 0.5]), **moving).notes
    assert moved == ("Whole sequences moved to host memory: 1 (6 tokens of states); back: 1.",)
    static = run(requests([2, 4], [3, 1]), num_gpu_blocks=33, batching="static", max_model_len=16)
    assert "Static batches computed 4 tokens of padding, 33.3% of all that was computed." in static.notes
    assert run(requests([2], [3]), num_gpu_blocks=33, max_model_len=16).notes == ()


def test_who_aborts_on_the_way_to_the_host_is_let_go_at_its_end() -> None:
    aborted = np.array([(3.0, 0, ABORT)], ACTION)
    workload = requests([4, 4], [9, 2], [0.0, 0.5], actions=aborted)
    settings = {"num_gpu_blocks": 17, "max_model_len": 16, "preemption_mode": "swap", "swap_patience_s": 1.0, "swap_gb_s": 4e-4}
    e = engine(workload, **settings)
    assert e.advance() == DONE
    e.check_integrity()
    assert int(e.counters.aborted) == 1
    assert e.state.reqs["finish"][0] == pytest.approx(2.0 + 5 * 131072 / 4e5 + 20e-6), "the copy began at 2 and is not cut short"
    assert int(e.counters.host_used) == 0


def test_the_folds_read_the_log() -> None:
    """Cells are reserved, then written; the fold's pool agrees with the engine at every turn."""
    workload = requests([3, 2], [4, 2])
    e = engine(workload, step_index(), num_gpu_blocks=17, max_model_len=8)
    moments = []
    while e.advance(pause=True) != DONE:
        moments.append([p for p in e.pieces() if p[2] >= 0])
    log = e.event_log()
    assert log is not None
    fold = PoolFold(log)
    for turn, pieces in enumerate(moments[1::2]):
        state = fold.seek(turn)
        assert [int(np.count_nonzero(state.ref)), sorted(state.live().tolist())] == [
            sum(n for _, n, _ in pieces),
            sorted(o for *_, o in pieces),
        ]
    shown = block_history(log).states_at(0) & STATE_MASK
    assert shown[1:9].tolist() == [IN_USE] * 3 + [RESERVED] * 5
    assert (block_history(log).states_at(len(block_history(log).frames) - 1)[1:] & STATE_MASK == FREE).all()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"num_gpu_blocks": 17, "max_model_len": 32}, "max_model_len=32"),
        ({"num_gpu_blocks": 13, "reservation": "oracle", "max_model_len": 64}, "Request r0 sets it"),
        ({"batching": "static", "preemption_mode": "swap"}, "batching=continuous"),
        ({"reservation": "most"}, "max, pow2, oracle"),
        ({"preemption_mode": "swap", "gpu": "H900"}, "gpu=H900"),
    ],
)
def test_what_cannot_start_says_why(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        engine(requests([6], [7]), **settings)


def test_the_pool_is_vllms() -> None:
    from simkv.engine.engines import resolve_for
    from simkv.settings import EngineSettings

    workload = requests([100], [50])
    shared: dict[str, Any] = {"model": "OPT-13B", "gpu": "A100-SXM4-40GB", "max_model_len": 2048}
    mine = resolve_for(ContiguousSettings(**shared), workload)
    assert mine.num_gpu_blocks == resolve_for(EngineSettings(**shared), workload).num_gpu_blocks
    assert mine.capacity is not None
    assert mine.capacity.bytes_per_token == 819_200
