"""What a run tells unasked: each cause in a run made for it, and silence where there is none."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.diagnosis.first_block import first_block
from simkv.diagnosis.history import cut_history
from simkv.diagnosis.parted import CHANGING, CUT, ORDER, parted
from simkv.diagnosis.resumed import hit_origin
from simkv.diagnosis.seats import Seats
from simkv.replay import replay
from simkv.replay_fleet import replay_fleet
from simkv.settings import EngineSettings
from simkv.settings.fleet import FleetSettings
from simkv.workload.workload import Workload, tokens_of
from tests.engine.hand import VIRTUAL, request, run, shared, workload


@given(st.integers(0, 1 << 30), st.sampled_from([4, 6, 10]), st.booleans())
def test_first_blocks_as_a_tree_of_tokens_has_them(seed: int, block: int, explicit: bool) -> None:
    rng = Random(seed)
    made = []
    for i in range(rng.randrange(1, 12)):
        pieces: list[Any] = []
        for _ in range(rng.randrange(1, 4)):
            n, content = rng.randrange(1, 8), rng.randrange(1, 4)
            pieces.append([content] * n if explicit else shared(n, content))
        more = {"cache_salt": rng.choice("ab")} if rng.random() < 0.4 else {}
        made.append(request(f"r{i}", pieces, 1, i, **more))
    w = workload(made, block_size=block)
    found = first_block(w, block)
    assert found is not None
    tree: dict[tuple[Any, ...], int] = {}
    for i in range(len(w)):
        head = tuple(_contents(w, i))[: min(block, int(w.num_prompt[i]))]
        salt = int(w.salt[i]) if w.salt is not None else 0
        for k in range(1, len(head) + 1):
            tree[(salt, *head[:k])] = tree.get((salt, *head[:k]), 0) + 1
    repeats = sum(count - 1 for count in tree.values())
    longest = max((len(path) - 1 for path, count in tree.items() if count > 1), default=0)
    assert found.whole == (longest >= block)
    if not found.whole:
        assert (found.longest, found.tokens) == (longest, repeats)
        assert (found.sentence is None) == (repeats == 0)


def _contents(w: Workload, i: int) -> list[Any]:
    """The prompt's tokens, told apart by content, not by the value that stands for it."""
    if (w.runs["seed"] < 0).any():
        return tokens_of(w, i).tolist()
    return [(seed, start + k) for seed, start, n in w.runs[w.first_run[i] : w.first_run[i + 1]].tolist() for k in range(n)]


def test_nothing_to_examine() -> None:
    w = workload([request("a", [shared(8)]), request("b", [shared(8)])])
    assert first_block(dataclasses.replace(w, prompts_have_content=False), 16) is None


@pytest.mark.parametrize("explicit", [False, True])
def test_text_that_changes_and_parts_in_another_order(explicit: bool) -> None:
    """By content and by written-out tokens alike."""

    def piece(n: int, seed: int, start: int = 0) -> Any:
        return [seed * 1000 + start + k for k in range(n)] if explicit else {"seed": seed, "n": n, "start": start}

    one = request("one", [piece(20, 1), piece(5, 90), piece(60, 1, 20)])
    changed = request("changed", [piece(20, 1), piece(7, 91), piece(60, 1, 20)])
    tools = request("tools", [piece(20, 1), piece(5, 90), piece(30, 1, 50), piece(30, 1, 20)])
    new = request("new", [piece(20, 1), piece(65, 95)])
    w = workload([one, changed, tools, new])
    found = [parted(w, i, 0, shared_) for i, shared_ in ((1, 20), (2, 25), (3, 20))]
    assert [f.cause if f else None for f in found] == [CHANGING, ORDER, None]
    assert found[0] is not None
    assert "Behind 7 other tokens it goes on like one" in found[0].sentence
    assert found[0].tokens == 60


def test_a_history_without_its_middle() -> None:
    """The answer has 50 tokens; the next turn has the last 40 but one, the turn after it all that was sent."""
    first = [shared(24)]
    cut = [*first, {"seed": 7, "n": 39, "start": 10}, shared(9, 3)]
    turns = [
        request("a", first, 50, 0, out_seed=7, session="s"),
        request("b", cut, 2, 100, out_seed=8, session="s"),
        request("c", [*cut, shared(1, 8), shared(9, 4)], 2, 200, session="s"),
    ]
    w = workload(turns)
    found = cut_history(w)
    assert found is not None
    assert (found.turns, found.cut) == (2, 1)
    assert found.sent_tokens - found.counted_tokens == 10 * 2, "both turns lack the same ten tokens"
    part = parted(w, 1, 0, 24)
    assert part is not None
    assert part.cause == CUT
    result = run(turns, num_gpu_blocks=200)
    assert any("leave out part of the answers" in note for note in result.notes)
    assert cut_history(workload([{k: v for k, v in t.items() if k != "session"} for t in turns])) is None


def test_hits_of_resumed_requests_are_told_apart() -> None:
    """Requests that outgrow a small pool; the old release counts what they find again, the new one apart."""
    grow = [request(f"r{i}", 12, 40, 0) for i in range(6)]
    for version, mixed in (("0.10", True), ("0.32", False)):
        result = run(grow, version=version, time=VIRTUAL, num_gpu_blocks=30, max_num_seqs=6, max_model_len=64)
        origin = hit_origin(result)
        assert origin.preemptions > 0
        assert origin.first_hits == 0
        assert origin.resumed_hits is not None
        assert (origin.sentence is not None) == mixed
        assert any("Seats exceed memory" in note for note in result.notes)


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_fleet_names_the_replica_where_it_happens_most(replicas: int) -> None:
    grow = workload([request(f"r{i}", 12, 40, 0) for i in range(20)], time=VIRTUAL, num_gpu_blocks=30, max_num_seqs=6, max_model_len=64)
    found = replay_fleet(grow, EngineSettings(engine_version="0.10"), FleetSettings(replicas=replicas))
    preempted = [r.counters["preemptions"] for r in found.replicas]
    assert min(preempted) > 0
    for cause in ("first admissions 0.0%", "Seats exceed memory"):
        (note,) = (n for n in found.notes if cause in n)
        assert note.startswith(f"Replica {preempted.index(max(preempted))}: ") == (replicas > 1)
        assert note.endswith(("look at num_preemptions.", "the more fit.", "The same on another replica.", "The same on 2 other replicas."))
        assert ("The same on" in note) == (replicas > 1)


def test_a_fleet_tells_of_its_traffic_once() -> None:
    """Prompts that share less than a block share nothing, wherever they go."""
    alike = workload([request(f"r{i}", [shared(7), shared(30, 3 + i)], arrive=5 * i) for i in range(40)], block_size=8, num_gpu_blocks=300)
    alone, many = replay(alike), replay_fleet(alike, fleet=FleetSettings(replicas=2))
    said = [note for note in alone.notes if note in many.notes]
    assert len(said) == 1, alone.notes
    assert not [note for note in many.notes if note.startswith("Replica")]


def test_seats() -> None:
    few = Seats(1000, 4, 400)
    assert (few.tokens_per_seat, few.safe_max_num_seqs) == (250, 2)
    assert few.sentence is not None
    assert "max_num_seqs=2 is safe" in few.sentence
    assert Seats(1000, 4, 250).sentence is None
    assert Seats(100, 4, 400).safe_max_num_seqs == 1
