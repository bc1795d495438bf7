"""The log tells the whole story: folded up to any turn it gives the engine's own pool, queue and tables."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from simkv.engine.vllm.chain import chain_keys, group_key
from simkv.engine.vllm.engine import VllmEngine
from simkv.errors import InputError
from simkv.events import layout as ev
from simkv.events.folds.block_map import CACHED, EVICTED, EVICTED_LAST, FREE, IN_USE, NULL, SHARED, STATE_MASK, block_history
from simkv.events.folds.pool import PoolFold, pool_at
from simkv.events.log import EventLog
from tests.engine.cases import draw_case
from tests.engine.hand import case, request
from tests.folds.live import recorded, same

CASES = 70


@pytest.mark.parametrize("seed", range(CASES))
def test_every_turn(seed: int) -> None:
    _, log, moments = recorded(draw_case(Random(seed)))
    fold = PoolFold(log)
    for turn, expected in enumerate(moments):
        same(fold.seek(turn), expected)
    r = Random(seed)
    for turn in [r.randrange(-1, len(moments)) for _ in range(5)]:
        state = fold.seek(turn)
        assert state.step == turn
        if turn >= 0:
            same(state, moments[turn])
        else:
            assert state.free_queue().tolist() == list(range(1, state.num_blocks))
            assert not state.key.any()


@pytest.mark.parametrize("seed", range(CASES))
def test_who_wrote_a_block(seed: int) -> None:
    """Writer and position name the content a cached block's key stands for, also where a window left nulls in the table."""
    case = draw_case(Random(seed))
    _, log, moments = recorded(case)
    fold, sizes, hashed = PoolFold(log), [int(g["block_size"]) for g in log.header["groups"]], case.settings.hash_block_size
    paths = case.settings.profile.lora_path_in_key
    for turn in range(0, len(moments), max(1, len(moments) // 6)):
        state = fold.seek(turn)
        for b in np.flatnonzero(state.key).tolist():
            writer, position, group = int(state.writer[b]), int(state.position[b]), int(state.group[b])
            end = (position + 1) * sizes[group] // hashed
            keys = chain_keys(case.workload, writer, hashed, lora_path=paths, upto=end)
            assert len(keys) == end
            assert int(keys[-1]) ^ group_key(group) == int(state.key[b])
        assert (state.writer[state.key == 0] == -1).all()


@pytest.mark.parametrize("seed", range(0, CASES, 2))
def test_history_of_blocks(seed: int) -> None:
    """Frames of the block map agree with the pool, whether every turn is shown or a few."""
    _, log, moments = recorded(draw_case(Random(seed)))
    for most_frames in (len(moments) + 10, 7, 1):
        history = block_history(log, most_frames)
        fold = PoolFold(log)
        assert len(history.frames) <= max(most_frames, 1)
        assert history.frames[-1] == len(log.steps) - 1
        before = -1
        for frame, turn in enumerate(history.frames.tolist()):
            shown = history.states_at(frame)
            state = fold.seek(turn)
            plain = np.select([state.ref > 1, state.ref == 1, state.key != 0], [SHARED, IN_USE, CACHED], FREE)
            plain[0] = NULL
            assert (shown & STATE_MASK == plain).all()
            assert np.flatnonzero(shown & EVICTED).tolist() == sorted(evicted_between(log, before, turn))
            assert np.flatnonzero(shown & EVICTED_LAST).tolist() == sorted(evicted_between(log, turn - 1, turn))
            assert history.times[frame] == log.steps["time"][turn]
            before = turn


def evicted_between(log: EventLog, before: int, turn: int) -> set[int]:
    """Blocks whose key left the cache in turns before+1 … turn."""
    fold, out = PoolFold(log), set[int]()
    for t in range(before + 1, turn + 1):
        rows = log.events[log.turn_slice(t)]
        kinds = rows["kind"] & ev.KIND_MASK
        out |= set(rows["arg"][kinds == ev.RECYCLED].tolist())
        if (kinds == ev.CLEARED).any():
            out |= set(np.flatnonzero(fold.seek(t - 1).key).tolist())
    return out


def test_owners_and_sharing() -> None:
    _, log, moments = recorded(draw_case(Random(12)))
    for turn in range(0, len(moments), 5):
        state = pool_at(log, turn)
        for b in range(1, state.num_blocks):
            owners = [r for r, rows in moments[turn].tables.items() if any(b in row for row in rows)]
            assert state.owners(b).tolist() == owners
        assert state.shared().tolist() == np.flatnonzero(state.ref > 1).tolist()


def test_a_turn_that_is_not_there() -> None:
    _, log, _ = recorded(draw_case(Random(1)))
    with pytest.raises(InputError, match="does not exist"):
        PoolFold(log).seek(len(log.steps))


def test_a_trim_and_a_preemption_right_after_it_are_two_releases() -> None:
    """The window has moved on, the blocks left of it go to the head of the queue, and the rest follows before them."""
    requests = [request("old", 3, 20), request("new", 40, 1)]
    made = case(requests, block_size=4, sliding_window=5, num_gpu_blocks=4, max_num_batched_tokens=11, scheduler_reserve_full_isl=False)
    _, log, moments = recorded(made)
    kinds = (log.events["kind"] & ev.KIND_MASK).tolist()
    at = kinds.index(ev.TRIMMED)
    assert kinds[at - 1 : at + 2] == [ev.FREED_FRONT, ev.TRIMMED, ev.FREED_FRONT]
    assert kinds[at + 2] == ev.PREEMPTED
    fold = PoolFold(log)
    for turn, expected in enumerate(moments):
        same(fold.seek(turn), expected)


def test_a_log_without_turns() -> None:
    made = case([request("r", 4)])
    engine = VllmEngine(made.workload, made.settings, made.step_time.record(), log=True)
    log = engine.event_log()
    assert log is not None
    assert pool_at(log, -1).free_queue().tolist() == list(range(1, 100))
    history = block_history(log)
    assert len(history.frames) == len(history.times) == 0
    assert history.first.tolist() == [NULL] + [FREE] * 99
