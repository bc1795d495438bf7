"""Why B differs from A, in a sentence or two. Every figure comes from the two runs; what they do not tell is said to be unknown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkv.comparison import causes as why
from simkv.comparison.causes import Causes, Shift, found, totals, unit
from simkv.comparison.metrics import SAME_POINTS, SAME_RELATIVE, figures, host_figures, waste_share
from simkv.comparison.parting import Parting, parting, reason
from simkv.comparison.waits import seats_taken, waits_more
from simkv.engine.step_time_layout import STEP_INDEX
from simkv.replay import Run
from simkv.text import counted, percent, seconds, short_count

MOST_TOLD = 50
MUCH_WASTE = 0.03
"""A difference of waste that is worth a sentence."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One request that finds different numbers of prompt tokens cached on both sides, and why."""

    request: str
    prompt_tokens: int
    cached: tuple[int, int]
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """B against A.

    Args:
        names: of the two sides.
        sentence: the difference and what it comes from.
        parting: the first decision that differs; ``None`` if there is none.
        shifts: the difference in cached tokens by cause; they add up to it.
        largest: the requests that differ most in cached tokens, at most MOST_TOLD.
        queue_s, prefill_s: how much longer B's requests wait for admission and then for their first token, mean of the
            requests that got one on both sides; ``None`` without seconds.
    """

    names: tuple[str, str]
    sentence: str
    parting: Parting | None
    shifts: tuple[Shift, ...]
    largest: tuple[Difference, ...]
    queue_s: float | None
    prefill_s: float | None


def explain(a: Run, b: Run, name_a: str = "A", name_b: str = "B") -> Explanation:
    """Compare two runs of the same requests."""
    causes, names = Causes(a, b), (name_a, name_b)
    known = a.workload.prompts_have_content
    shifts = tuple(totals(causes.lost())) if known else ()
    where = parting(causes, names)
    queue, prefill = _delays(a, b)
    if where is None and (a.resolved.engine == b.resolved.engine or _same_times(a, b)):
        sentence = _same_decisions(a, b, names)
    else:
        parts = (
            _hits(a, b, names, shifts),
            _latency(a, b, names, queue, prefill),
            _from_host(a, b, names),
            _thrown_back(a, b, names),
            _wasted(a, b, names),
        )
        sentence = " ".join(part for part in parts if part)
    return Explanation(names, sentence, where, shifts, _largest(causes, names) if known else (), queue, prefill)


def _largest(causes: Causes, names: tuple[str, str]) -> tuple[Difference, ...]:
    w, (x, y) = causes.runs[0].workload, (found(run) for run in causes.runs)
    out = []
    for i in causes.differing()[:MOST_TOLD].tolist():
        because = "; ".join(reason(causes, part, names) for part in reversed(causes.of(i)))
        out.append(Difference(w.id(i), int(w.num_prompt[i]), (int(x[i]), int(y[i])), because))
    return tuple(out)


def _same_decisions(a: Run, b: Run, names: tuple[str, str]) -> str:
    steps = counted(len(a.steps), "step")
    if _same_times(a, b):
        return f"No difference: {names[0]} and {names[1]} make the same decisions in all {steps} at the same times."
    x, y = float(a.steps["duration"].sum()), float(b.steps["duration"].sum())
    return (
        f"{names[0]} and {names[1]} make the same decisions in all {steps};"
        f" only the time differs: {names[1]}'s steps take {seconds(y)} in all, {names[0]}'s {seconds(x)}."
    )


def _same_times(a: Run, b: Run) -> bool:
    return all(np.array_equal(a.requests[n], b.requests[n], equal_nan=True) for n in ("scheduled", "first_token", "finish"))


def _hits(a: Run, b: Run, names: tuple[str, str], shifts: tuple[Shift, ...]) -> str:
    x, y = (figures(run)["hit_rate"] for run in (a, b))
    if x is None or y is None:
        return "The source says nothing about content, so there are no hits to compare."
    more = int(found(b).sum() - found(a).sum())
    if not shifts:
        return f"Both find the same {percent(x)} of prompt tokens cached."
    if abs(y - x) < SAME_POINTS:
        head = f"Both find {percent(x)} of prompt tokens cached"
        what = f"{names[1]} {short_count(abs(more))} tokens {'more' if more > 0 else 'fewer'}" if more else "but not for the same requests"
        return f"{head}, {what}: {_by_cause(a, b, names, shifts)}."
    verb = "finds" if y > x else "finds only"
    points = f"{abs(y - x) * 100:.1f} points {'more' if y > x else 'less'}"
    return (
        f"{names[1]} {verb} {percent(y)} of prompt tokens cached, {names[0]} {percent(x)} ({points},"
        f" {short_count(abs(more))} tokens): {_by_cause(a, b, names, shifts)}."
    )


def _by_cause(a: Run, b: Run, names: tuple[str, str], shifts: tuple[Shift, ...]) -> str:
    """The causes that make up most of the difference: those of the side that finds less, then what speaks for it; the biggest first."""
    whole = sum(s.tokens for s in shifts)
    behind = int(sum(s.tokens if s.side else -s.tokens for s in shifts) > 0)
    told = sorted([s for s in shifts if s.tokens >= 0.1 * whole][:3], key=lambda s: s.side != behind)
    parts = [_cause((a, b)[s.side], names[s.side], s) for s in told]
    turn = next((i for i, s in enumerate(told) if i and s.side != behind), 0)
    if turn:
        parts[turn] = f"against that {parts[turn]}"
    rest = whole - sum(s.tokens for s in told)
    if rest:
        parts.append(f"{short_count(rest)} tokens for other reasons")
    if any(s.cause == why.EVICTED for s in told):
        pools = [(run.resolved.num_gpu_blocks - 1) * run.resolved.block_size for run in (a, b)]
        if abs(pools[1] - pools[0]) > 0.02 * pools[0]:
            parts.append(f"{names[1]}'s pool holds {short_count(pools[1])} tokens, {names[0]}'s {short_count(pools[0])}")
    return "; ".join(parts)


def _cause(run: Run, name: str, s: Shift) -> str:
    texts = {
        why.EDGE: f"behind {name}'s last whole block of {unit(run)} tokens",
        why.EVICTED: f"that {name} had evicted before they came back",
        why.CLEARED: f"that {name} had cleared",
        why.NOT_INSERTED: f"that {name} had computed or under way, but not in its cache yet",
        why.LATER: f"that {name} did not have yet, because it admits the requests that bring them later",
        why.CACHING_OFF: f"that {name} computes again because it has no prefix cache",
        why.NOT_USABLE: f"that {name} had cached but could not resume on",
        why.NEVER: f"of requests that {name} never admitted",
        why.NOT_EXAMINED: "that were not examined one by one",
        why.UNKNOWN: f"that {name} misses for reasons the logs do not tell",
    }
    return f"{short_count(s.tokens)} tokens {texts[s.cause]}"


def _delays(a: Run, b: Run) -> tuple[float | None, float | None]:
    """Mean difference of queue time and of the time from admission to first token, over requests with both on both sides."""
    if STEP_INDEX in (a.step_time.kind, b.step_time.kind):
        return None, None
    known = np.isfinite(a.requests["first_token"]) & np.isfinite(b.requests["first_token"])
    if not known.any():
        return None, None
    wait = [run.requests["scheduled"][known] - run.requests["arrive"][known] for run in (a, b)]
    rest = [run.requests["first_token"][known] - run.requests["scheduled"][known] for run in (a, b)]
    return float((wait[1] - wait[0]).mean()), float((rest[1] - rest[0]).mean())


_WAITING = {
    "compute": "requests come faster than {name} computes them",
    "seats": "{seats}",
    "memory": "the running requests hold {name}'s pool",
}


def _latency(a: Run, b: Run, names: tuple[str, str], queue: float | None, prefill: float | None) -> str:
    """How TTFT moves, and which part of it: waiting for admission, or from there to the first token."""
    x, y = figures(a).get("ttft_p95_s"), figures(b).get("ttft_p95_s")
    if queue is None or prefill is None or x is None or y is None:
        return ""
    stays = abs(y - x) <= SAME_RELATIVE * x
    if stays:
        head = f"TTFT p95 stays at {seconds(x)}"
    else:
        head = f"TTFT p95 {'rises' if y > x else 'falls'} from {seconds(x)} to {seconds(y)}"
    mean = float(np.nanmean(a.requests["first_token"] - a.requests["arrive"]))
    if stays and abs(queue) + abs(prefill) <= 2 * SAME_RELATIVE * mean:
        return f"{head}."
    most = max(abs(queue), abs(prefill))
    parts = []
    if abs(queue) >= 0.2 * most:
        slow, fast, name = (b, a, names[1]) if queue > 0 else (a, b, names[0])
        because = _WAITING[waits_more(slow, fast)].format(name=name, seats=seats_taken(f"{name}'s", slow.resolved.max_running))
        parts.append(f"requests wait {_longer(queue)} for admission ({because})")
    if abs(prefill) >= 0.2 * most:
        parts.append(f"the first token comes {_longer(prefill, 'later', 'sooner')} after it" if parts else _prefill_alone(prefill))
    return f"{head}: on average {' and '.join(parts)}."


def _prefill_alone(prefill: float) -> str:
    return f"the first token comes {_longer(prefill, 'later', 'sooner')} after admission"


def _longer(value: float, more: str = "longer", less: str = "less") -> str:
    return f"{seconds(abs(value))} {more if value > 0 else less}"


def _thrown_back(a: Run, b: Run, names: tuple[str, str]) -> str:
    x, y = int(a.counters["preemptions"]), int(b.counters["preemptions"])
    if x == y or max(x, y) < 0.02 * len(a.workload):
        return ""
    return f"Requests are preempted {counted(y, 'time')} in {names[1]}, {counted(x, 'time')} in {names[0]}."


def _from_host(a: Run, b: Run, names: tuple[str, str]) -> str:
    loaded = [host_figures(run).get("host_tokens") for run in (a, b)]
    said = [f"{name} loads {short_count(tokens)} tokens" for name, tokens in zip(names, loaded, strict=True) if tokens]
    return f"From host memory {' and '.join(said)}." if said else ""


def _wasted(a: Run, b: Run, names: tuple[str, str]) -> str:
    x, y = waste_share(a), waste_share(b)
    if x is None or y is None or abs(y - x) < MUCH_WASTE:
        return ""
    return f"Of the KV memory that requests hold, {percent(y)} holds no token states in {names[1]}, {percent(x)} in {names[0]}."
