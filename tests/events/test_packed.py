"""Packed and spread out are the same log."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simkv.events import layout as ev
from simkv.events.layout import EVENT
from simkv.events.packed import pack, spread
from simkv.replay import replay
from simkv.settings import EngineSettings
from simkv.workload.generators import generate

KIND = st.integers(0, len(ev.KIND_NAMES) - 1)
ROW = st.tuples(st.integers(-1, 3), st.integers(0, 9), st.builds(lambda kind, group: kind | group << ev.KIND_BITS, KIND, st.integers(0, 2)))


@given(st.lists(ROW, max_size=60))
@settings(derandomize=True, max_examples=300, deadline=None)
def test_spread_undoes_pack(rows: list[tuple[int, int, int]]) -> None:
    events = np.array(rows, EVENT)
    packed, blocks = pack(events)
    assert spread(packed, blocks).tobytes() == events.tobytes()
    assert len(packed) <= len(events)


def test_the_engine_packs_its_runs() -> None:
    run = replay(generate("shared_system_prompt", requests=50), EngineSettings(num_gpu_blocks=400, max_num_seqs=8, max_model_len=4096))
    assert run.log is not None
    assert len(run.log.rows) < len(run.log.events) == len(run.log)
    again, blocks = pack(run.log.events)
    assert spread(again, blocks).tobytes() == run.log.events.tobytes()


def test_columns_that_do_not_belong_together() -> None:
    rows = np.array([(0, 3, ev.HIT)], EVENT)
    with pytest.raises(ValueError, match="3 blocks, there are 2"):
        spread(rows, np.array([1, 2], np.int32))
