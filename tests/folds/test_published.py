"""What is published as KV events is what is cached: a consumer that counts them knows the engine's cache."""

from __future__ import annotations

import dataclasses
from collections import Counter
from random import Random

import numpy as np
import pytest

from simkv.events.digests import Digests
from simkv.events.export.kv_events import kv_events
from simkv.events.types import BlockRemoved, BlockStored
from simkv.workload.workload import IMAGE
from tests.engine.cases import draw_case
from tests.folds.live import recorded


@pytest.mark.parametrize("seed", range(40))
def test_counting_events(seed: int) -> None:
    """Also with resets, extra keys, sliding groups and equal blocks: after every turn as many contents as keys."""
    case = draw_case(Random(4000 + seed))
    profile = case.settings.profile
    if not profile.tagged_extra_keys:  # old releases hash a picture, but not where in its block it stands; the engine's keys do both
        case = dataclasses.replace(case, workload=dataclasses.replace(case.workload, first_image=None, images=np.zeros(0, IMAGE)))
    _, log, moments = recorded(case)
    digests = Digests(case.workload, case.settings.hash_block_size, tagged=profile.tagged_extra_keys, lora_path=profile.lora_path_in_key)
    cached, sizes, turn = Counter[tuple[bytes, int | None]](), list[int](), 0
    for step, event in kv_events(log, digests):
        sizes += [len(cached)] * (step - turn)
        turn = step
        if isinstance(event, BlockStored):
            cached.update((h, event.group_idx) for h in event.block_hashes)
        elif isinstance(event, BlockRemoved):
            for key in ((h, event.group_idx) for h in event.block_hashes):
                assert cached[key] > 0, "removed, but never stored"
                cached[key] -= 1
                if not cached[key]:
                    del cached[key]
        else:
            cached.clear()
    sizes += [len(cached)] * (len(log.steps) - turn)
    assert sizes[: len(moments)] == log.steps["cached"][: len(moments)].tolist()
