import json
import struct
import zlib
from itertools import pairwise

import numpy as np
import pytest

from simkv.events import layout as ev
from simkv.replay import Progress
from simkv.ui import details, view
from simkv.ui.shown import Shown
from simkv.ui.tabs import block_tables, blocks, events, free_queue, hit_rate, requests
from simkv.ui.verdict import verdict


def test_the_run_loses_hits_to_evictions(shown: Shown) -> None:
    s = shown.story
    assert s.evicted > 0
    assert s.ceiling > s.hit_rate
    assert "evicts prefixes before they return" in verdict(s)


@pytest.mark.parametrize("version", ["0.25", "0.32"])
def test_the_headline_is_about_prompt_tokens_whatever_the_release_counts(shown: Shown, version: str) -> None:
    from simkv.replay import replay

    run = replay(shown.run.workload, shown.run.settings.replace(engine_version=version, max_num_seqs=64, num_gpu_blocks=60))
    old = Shown(shown.config, run)
    r = run.requests
    assert old.story.prompt_tokens == run.workload.num_prompt.sum()
    assert old.story.hits == r["hit"].sum()
    assert verdict(old.story).startswith(f"{100 * r['hit'].sum() / run.workload.num_prompt.sum():.1f} % of prompt tokens")
    assert (run.counters["queries"] > old.story.prompt_tokens) == run.resolved.profile.stats_at_lookup
    assert old.counted_hit_rate == run.summary()["hit_rate"]


def test_it_opens_where_evictions_happen(shown: Shown) -> None:
    assert shown.run.steps["removed"][: shown.start_step + 1].sum() > 0
    assert shown.history is not None
    assert shown.start_step in shown.history.frames


def test_the_blob_holds_the_history(shown: Shown) -> None:
    length = struct.unpack_from("<I", shown.blob)[0]
    meta = json.loads(shown.blob[4 : 4 + length])
    assert meta["run"] == shown.digest
    assert shown.history is not None
    n, frames, changes = struct.unpack_from("<III", zlib.decompress(shown.blob[4 + length :]))
    assert (n, frames, changes) == (260, len(shown.history.frames), len(shown.history.index))
    assert shown.history.frames[meta["start"]] == shown.start_step


def test_frames_cover_every_step(shown: Shown) -> None:
    assert shown.history is not None
    covered = [(shown.frame_first_step(int(f)), int(f)) for f in shown.history.frames]
    assert covered[0][0] == 0
    assert all(after[0] == before[1] + 1 for before, after in pairwise(covered))
    assert all(shown.frame_step(step) >= step for step in range(0, shown.last_step, 17))


def some_block(shown: Shown, wanted: str) -> tuple[int, int]:
    """A step and a block in a state."""
    for step in range(shown.last_step):
        state = shown.state(step)
        assert state is not None
        which = {
            "cached": (state.ref == 0) & (state.key != 0),
            "in use": (state.ref == 1) & (state.key != 0),
            "shared": state.ref > 1,
        }[wanted]
        which[0] = False
        if which.any():
            return step, int(np.flatnonzero(which)[0])
    raise AssertionError(f"no {wanted} block")


def by_label(facts: list[details.Fact]) -> dict[str, details.Fact]:
    return {f.label: f for f in facts if f.label}


def test_a_cached_block_says_when_it_dies(shown: Shown) -> None:
    step, block = some_block(shown, "cached")
    state = shown.state(step)
    assert state is not None
    facts = by_label(details.block_facts(shown, state, block, with_digest=True))
    assert facts["state"].value == "cached, evictable"
    assert facts["ref_cnt"].value == "0"
    place = int(np.flatnonzero(state.free_queue() == block)[0])
    assert facts["queue"].value.startswith(f"{place + 1:,} of {len(state.free_queue()):,}")
    assert len(facts["digest"].value) == 64
    assert facts["tokens"].request == state.writer[block]


def test_queue_position_counts_allocations(shown: Shown) -> None:
    """The next allocations take exactly the blocks the queue says, in its order."""
    step = shown.start_step
    log, state = shown.run.log, shown.state(step)
    assert log is not None
    assert state is not None
    kinds = log.events["kind"] & ev.KIND_MASK
    rows = log.events[log.turn_slice(step).stop :]
    taken = rows["arg"][np.isin(kinds[log.turn_slice(step).stop :], (ev.ALLOCATED, ev.RECYCLED))]
    head = state.free_queue()[0]
    hit = rows["arg"][kinds[log.turn_slice(step).stop :] == ev.HIT]
    assert head not in hit[:50], "nobody hits the head first in this run, so it is the next to be taken"
    assert taken[0] == head
    assert details.queue_fact(state, int(head)).value.endswith("next to be taken")


def test_a_shared_block_names_its_owners(shown: Shown) -> None:
    step, block = some_block(shown, "shared")
    state = shown.state(step)
    assert state is not None
    facts = details.block_facts(shown, state, block)
    owners = [f.request for f in facts if f.request is not None and f.label in ("shared by", "")]
    assert owners == [int(r) for r in state.owners(block)][: details.MAX_OWNERS]
    assert "not in the free queue" in by_label(facts)["queue"].value


def test_the_parent_is_the_block_before_in_the_table(shown: Shown) -> None:
    step, _ = some_block(shown, "in use")
    state = shown.state(step)
    assert state is not None
    table = state.tables(int(state.live()[0]))[0]
    full = [int(b) for b in table if state.key[b]]
    assert len(full) > 2
    for before, block in pairwise(full):
        parent = details.parent_of(shown, state, block)
        assert parent is not None
        assert state.key[parent] == state.key[before]
    assert by_label(details.block_facts(shown, state, full[0]))["parent"].value.startswith("none")


def test_the_null_block_has_no_story(shown: Shown) -> None:
    state = shown.state(0)
    assert state is not None
    assert [f.label for f in details.block_facts(shown, state, 0)] == ["state"]


def test_victims_are_told_in_groups_and_in_order(shown: Shown) -> None:
    state = shown.state(shown.start_step)
    assert state is not None
    victims = details.next_victims(shown, state, 3)
    assert victims[0].block == state.free_queue()[0]
    assert victims[0].label.startswith("1")
    assert all("idle" in v.value or "nothing cached" in v.value for v in victims)


def test_tabs_tell_the_pool_as_it_is(shown: Shown) -> None:
    step, block = some_block(shown, "shared")
    state, log = shown.state(step), shown.run.log
    assert state is not None
    assert log is not None
    queue = free_queue.rows(shown, state)
    assert queue["block"] == state.free_queue()[: free_queue.ROWS].tolist()
    owner = int(state.owners(block)[0])
    table = block_tables.columns(shown, state, owner)
    assert table["physical"] == state.tables(owner)[0].tolist()
    at = table["physical"].index(block)
    assert table["ref_cnt"][at] == state.ref[block]
    assert table["shared with"][at]
    whole = blocks.columns(shown, state)
    assert list(whole["state"]).count("shared") == np.count_nonzero(state.ref[1:] > 1)
    assert whole["state"][0] == "null"


def test_the_free_queue_says_how_many_allocations_come_first_and_where_released_blocks_go(shown: Shown) -> None:
    import dataclasses

    state = shown.state(shown.start_step)
    assert state is not None
    assert free_queue.rows(shown, state)["allocations before it"][:3] == [0, 1, 2]
    assert "without a hash go to the head" in free_queue.released(shown)
    for changes, expected in (
        ({"engine_version": "0.23"}, "A released request's blocks go to the tail"),
        ({"engine_version": "0.23", "enable_prefix_caching": False}, "released blocks go to the tail."),
        ({"enable_prefix_caching": False}, "released blocks go to the head."),
    ):
        from simkv.engine.resolve import resolve

        other = resolve(shown.run.settings.replace(**changes), shown.run.workload)
        assert expected in free_queue.released(Shown(shown.config, dataclasses.replace(shown.run, resolved=other)))


def test_keys_are_put_in_order_when_somebody_asks(shown: Shown) -> None:
    fresh = Shown(shown.config, shown.run)
    assert not fresh.keys_known
    assert fresh.why(3).sentence
    assert fresh.keys_known


def test_events_read_as_sentences(shown: Shown) -> None:
    log = shown.run.log
    assert log is not None
    data, total = events.columns(shown, log, 0, 0)
    assert total == log.turn_slice(0).stop
    assert data["event"][0] == "arrived"
    everything, count = events.columns(shown, log, 0, shown.last_step, events.FILTERS["evictions"], most=10**9)
    assert count == shown.story.evicted
    assert set(everything["event"]) == {"recycled"}
    assert all(events.sentence(kind, 1) for kind in range(len(ev.KIND_NAMES)))


def test_requests_and_their_misses(shown: Shown) -> None:
    table = requests.columns(shown)
    assert len(table["request"]) == 120
    assert table["status"].count("finished") == 120
    lines = requests.csv(shown).decode().splitlines()
    assert len(lines) == 121
    assert lines[0].startswith("request,arrives,prompt,cached")
    kinds = {shown.why(i).kind for i in range(120)}
    assert {"evicted", "new content"} <= kinds
    step = requests.admission_step(shown, 5)
    assert step is not None
    assert shown.run.steps["time"][step] <= shown.run.requests["scheduled"][5]


def test_names_from_a_trace_cannot_run_in_a_spreadsheet() -> None:
    assert requests._cell("=HYPERLINK(1)") == "'=HYPERLINK(1)"
    assert requests._cell(float("nan")) == ""


def test_curves_keep_no_data_apart(shown: Shown) -> None:
    data = hit_rate.columns(shown, 50)
    assert all(len(column) == 50 for column in data.values())
    figure = hit_rate.figure(shown, shown.start_step)
    assert len(figure.data) == 5


def test_run_json_is_plain(shown: Shown) -> None:
    told = json.loads(view.run_json(shown))
    assert told["summary"]["requests"] == 120
    assert told["changed_settings"]["num_gpu_blocks"] == 260
    assert told["verdict"]


def test_a_run_without_log_still_has_its_figures(shown: Shown) -> None:
    import dataclasses

    from simkv.ui.shown import fold

    bare = fold(Shown(shown.config, dataclasses.replace(shown.run, log=None)))
    assert bare.history is None
    assert "Limit the requests" in bare.note
    assert bare.state(0) is None
    assert bare.start_block is None
    assert bare.story.hits == shown.story.hits


@pytest.mark.parametrize("reports", [1, 3])
def test_a_cancelled_run_is_partial(shown: Shown, reports: int) -> None:
    """Cancelled at a certain report of progress: the first few come long before the end, however fast the machine is."""
    from simkv.replay import replay
    from simkv.ui.shown import fold

    seen: list[float] = []

    def progress(p: Progress) -> bool:
        seen.append(p.fraction)
        return len(seen) < reports

    run = replay(shown.run.workload, shown.run.settings, progress=progress)
    assert (run.status, len(seen)) == ("partial", reports)
    part = fold(Shown(shown.config, run))
    assert verdict(part.story).startswith("Partial result")
