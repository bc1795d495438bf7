"""Chats whose history comes back shorter than it was said: the prefix breaks where the first piece is missing."""

from __future__ import annotations

from dataclasses import dataclass

from simkv.workload.workload import Workload

MOST_TURNS = 20_000


@dataclass(frozen=True, slots=True)
class CutHistory:
    """What later turns leave out of earlier answers.

    Args:
        turns: later turns of sessions; ``cut`` of them continue inside the answer before, and go on with something else.
        sent_tokens: tokens their prompts would have with the whole answers in them; ``counted_tokens`` they have.
    """

    turns: int
    cut: int
    sent_tokens: int
    counted_tokens: int

    @property
    def removed_share(self) -> float:
        """Share of what was said that the engine never sees again."""
        return 1.0 - self.counted_tokens / self.sent_tokens

    @property
    def sentence(self) -> str:
        """For people."""
        return (
            f"{self.cut:,} of {self.turns:,} later turns leave out part of the answers before them, {self.removed_share:.0%} of what"
            " had been said: client or proxy strips prior reasoning. The prefix breaks at the first stripped turn; all behind it is new."
        )


def cut_history(w: Workload) -> CutHistory | None:
    """Compare each turn of a session with the turn before it; ``None`` if no history was cut, or no session is known.

    A cut turn contains the whole prompt before it, parts from that one's answer, and holds a later piece of the answer. Only content
    runs are compared, not written-out tokens.
    """
    if w.session is None or not w.prompts_have_content:
        return None
    last: dict[int, int] = {}
    missing: dict[int, int] = {}
    turns = cut = sent = counted = 0
    for i, session in enumerate(w.session.tolist()):
        before, last[session] = last.get(session), i
        if before is None or session < 0:
            continue
        turns += 1
        if turns > MOST_TURNS:
            return None
        left_out = _left_out(w, before, i)
        if left_out is None:
            continue
        missing[session] = missing.get(session, 0) + left_out
        cut += left_out > 0
        counted += int(w.num_prompt[i])
        sent += int(w.num_prompt[i]) + missing[session]
    return CutHistory(turns, cut, sent, counted) if cut else None


def _left_out(w: Workload, before: int, i: int) -> int | None:
    """Tokens of the answer of ``before`` that prompt ``i`` lacks in front of what it has of it; ``None`` if it has nothing of it.

    What lacks behind, such as the token that ends an answer, breaks no prefix.
    """
    prompt = _pieces(w, before, 0, int(w.num_prompt[before]))
    mine = _pieces(w, i, 0, int(w.num_prompt[i]))
    if not _begins_with(mine, prompt):
        return None
    kept = last = at = 0
    for seed, start, end in _pieces(w, before, int(w.num_prompt[before]), int(w.num_prompt[before]) + int(w.num_output[before])):
        for content, first, until in mine:
            low, high = max(start, first), min(end, until)
            if content == seed and low < high:
                kept, last = kept + high - low, at + high - start
        at += end - start
    return last - kept if kept else None


Piece = tuple[int, int, int]


def _pieces(w: Workload, i: int, begin: int, end: int) -> list[Piece]:
    """Tokens ``begin … end-1`` of a request as (content, first, end) of its contents."""
    out, at = [], 0
    for seed, start, n in w.runs[w.first_run[i] : w.first_run[i + 1]].tolist():
        low, high = max(begin - at, 0), min(end - at, n)
        if low < high:
            out.append((seed, start + low, start + high))
        at += n
    return out


def _begins_with(pieces: list[Piece], beginning: list[Piece]) -> bool:
    """Whether the pieces begin with the whole of another list; the last piece may go on."""
    if len(pieces) < len(beginning) or not beginning or pieces[: len(beginning) - 1] != beginning[:-1]:
        return False
    (seed, start, end), (seed_b, start_b, end_b) = pieces[len(beginning) - 1], beginning[-1]
    return seed >= 0 and (seed, start) == (seed_b, start_b) and end >= end_b
