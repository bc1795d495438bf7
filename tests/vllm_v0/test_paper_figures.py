"""Figures 8 and 9 of the PagedAttention paper (Kwon et al., SOSP 2023), worked out by hand."""

from __future__ import annotations

from simkv.engine.contract import DONE, PROCESSED, SCHEDULED
from simkv.engine.vllm_v0.engine import V0Engine
from simkv.events import layout as ev
from tests.vllm_v0.cases import case, engine


def half_turn(e: V0Engine, expected: int) -> list[tuple[str, int, int]]:
    """Go on half a turn; what happened as (kind, sequence, argument)."""
    mark = e.mark()
    assert e.advance(pause=True) == expected
    e.check_integrity()
    rows = e.events_since(mark)
    return [(ev.KIND_NAMES[k & ev.KIND_MASK], int(k) >> ev.KIND_BITS, int(a)) for k, a in zip(rows["kind"], rows["arg"], strict=True)]


def tables(e: V0Engine) -> list[list[int]]:
    return [t.tolist() for t in e.tables(0)]


def test_figure_8_two_samples_of_one_prompt() -> None:
    """Seven prompt tokens in blocks of 4: the half-full last block is shared, copied by the first writer, kept by the second."""
    e = engine(case([(0, 7, 3)], n=2))
    assert half_turn(e, SCHEDULED) == [("arrived", 0, 0), ("allocated", 0, 1), ("allocated", 0, 2), ("admitted", 0, 0), ("scheduled", 0, 7)]
    assert half_turn(e, PROCESSED) == [("first_token", 0, 0), ("adopted", 1, 0), ("hit", 1, 1), ("hit", 1, 2)]
    assert tables(e) == [[1, 2], [1, 2]]
    assert e.state.ref[1:4].tolist() == [2, 2, 0]

    # The eighth token of both goes to the last block: reference count 2 -> copy on write; then 1 -> written in place.
    assert half_turn(e, SCHEDULED) == [("adopted", 0, 1), ("allocated", 0, 3), ("copied", 0, 3), ("released", 0, 2), ("scheduled", 0, 2)]
    assert tables(e) == [[1, 3], [1, 2]]
    assert e.state.ref[1:4].tolist() == [2, 1, 1]
    assert half_turn(e, PROCESSED) == []

    # The ninth token opens a block of its own in each.
    assert half_turn(e, SCHEDULED) == [("allocated", 0, 4), ("allocated", 1, 5), ("scheduled", 0, 2)]
    assert tables(e) == [[1, 3, 4], [1, 2, 5]]

    # Three tokens are out: both end, the first sequence before the second.
    assert half_turn(e, PROCESSED) == [
        ("freed_front", 0, 4),
        ("freed_front", 0, 3),
        ("released", 0, 1),
        ("freed_front", 1, 5),
        ("freed_front", 1, 2),
        ("freed_front", 1, 1),
        ("finished", 0, 0),
    ]
    assert e.advance() == DONE
    assert e.free_queue()[:6].tolist() == [5, 2, 1, 4, 3, 6]
    assert e.generated().tolist() == [3]


def test_a_full_last_block_is_never_copied() -> None:
    e = engine(case([(0, 8, 4)], n=3))
    assert e.advance() == DONE
    assert int(e.counters.copies) == 0
    assert int(e.counters.forks) == 2


def survivors(*parents: int) -> list[int]:
    """A step in which these beams live on; the candidates that do not make it descend from the last of them."""
    return [*parents, *[parents[-1]] * len(parents)]


def test_figure_9_four_beams() -> None:
    """One token a block. Before the figure's step beams 0-2 share three of four blocks and beam 3 only the first."""
    parents = [survivors(0, 0, 0, 1), survivors(0, 0, 0, 3), survivors(1, 1, 2, 2), survivors(0, 1, 2, 3), survivors(0, 1, 2, 3)]
    e = engine(case([(0, 1, 6)], parents=parents, best_of=4, use_beam_search=True, block_size=1))
    for half in [SCHEDULED, PROCESSED] * 3 + [SCHEDULED]:
        half_turn(e, half)
    before = tables(e)
    assert [len({row[k] for row in before}) for k in range(4)] == [1, 2, 2, 4]
    assert before[0][:3] == before[1][:3] == before[2][:3] != before[3][:3]
    in_use = 100 - int(e.counters.free)
    assert in_use == 9

    # The best four candidates descend from beams 1 and 2: what only beams 0 and 3 held is freed, four blocks.
    happened = half_turn(e, PROCESSED)
    freed = {block for kind, _, block in happened if kind == "freed_front"}
    assert freed == {before[0][3], *before[3][1:]}
    assert sorted(tables(e)) == sorted([before[1], before[1], before[2], before[2]])

    # Four new blocks for the four next tokens, and nothing is copied: a full block is not written again.
    happened = half_turn(e, SCHEDULED)
    assert [kind for kind, _, _ in happened] == ["allocated"] * 4 + ["scheduled"]
    assert 100 - int(e.counters.free) == in_use
    assert sorted(e.state.ref[before[1]].tolist()) == [2, 4, 4, 4]
    assert e.advance() == DONE
    assert int(e.counters.copies) == 0
