"""What requests wait for."""

from __future__ import annotations

from simkv.replay import Run

REASONS = ("seats", "compute", "memory")


def waited(run: Run) -> dict[str, float]:
    """Seconds spent waiting, summed over the requests, by what stood in the way when they were not admitted.

    ``seats``: as many requests run as may run; ``compute``: the step's token budget is used up; else ``memory``.
    """
    steps, r = run.steps, run.resolved
    lost = steps["waiting"] * steps["duration"]
    seats = steps["running"] >= r.max_running
    full = steps["prefill"] + steps["decode"] >= 0.95 * r.token_budget
    parts = (seats, full & ~seats, ~seats & ~full)
    return {name: float(lost[part].sum()) for name, part in zip(REASONS, parts, strict=True)}


def waits_more(slow: Run, fast: Run) -> str:
    """The reason that accounts for most of the waiting ``slow`` has more than ``fast``."""
    mine, theirs = waited(slow), waited(fast)
    return max(REASONS, key=lambda name: mine[name] - theirs[name])


def seats_taken(whose: str, seats: int) -> str:
    """``B's 8 seats are taken``, ``its one seat is taken``."""
    return f"{whose} one seat is taken" if seats == 1 else f"{whose} {seats:,} seats are taken"
