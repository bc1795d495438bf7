"""Rows of the table of turns in a stretch of decodes: one row for turns that are alike (simkv/events/turns.py)."""

from __future__ import annotations

from simkv.engine.vllm.compiled import inline
from simkv.events import layout as ev


@inline
def goes_on(step, c, lag):
    """Whether a turn in which all running requests decode can share the last row: it is like that row's last turn.

    ``lag``: batches that are on the device when the next is scheduled; their tokens are counted later.
    """
    if step.decode != c.running or step.running != c.running or step.prefill > 0 or step.waiting > 0 or step.finished > 0:
        return False
    if step.free != c.free or step.cached != c.cached or (lag == 0 and step.cadence != c.running):
        return False
    return step.schedule >= 0 and step.schedule + step.turns == c.steps


@inline
def turns_with_room(e, cfg, c, need):
    """How many turns without new blocks the logs can take, after ``has_room`` found room for one, which leaves ``need`` rows free."""
    room = e.ticks.size - c.logged_ticks
    if cfg.log:
        rows = min(e.log.size - need - c.logged_rows, cfg.max_events - c.events)
        room = min(room, rows // c.running + 1)
    return room


@inline
def write_step(step, c, time, duration, events):
    """A new row for such turns, of which there are none yet. ``events``: where those of the first begin."""
    step.time = time
    step.duration = duration
    step.first_event = events
    step.queries = step.hits = step.recompute_queries = step.recompute_hits = 0
    step.schedule = min(c.steps, ev.LAST_INDEX)
    step.prefill = step.waiting = step.admitted = step.preempted = step.finished = 0
    step.decode = step.running = c.running
    step.free = c.free
    step.cached = c.cached
    step.stored = step.removed = step.turns = 0
