"""Whether the logs can take one more turn: nothing is allocated in compiled code, so they grow between turns."""

from __future__ import annotations

from simkv.engine.offload.hooks import has_slots, most_host_events, most_loads
from simkv.engine.vllm.compiled import inline
from simkv.engine.vllm.queue import clock


@inline
def most_events(e, cfg, c):
    """Upper bound of the events one turn can write."""
    to_come = e.reqs.size - c.finished - c.aborted - c.rejected - c.unfinished
    acts = c.next_action < e.actions.size and e.actions[c.next_action].at <= clock(cfg, c)
    running = 0 if acts else c.running  # aborts and resets make room before schedule()
    admissible = min(cfg.max_running - running, c.unfinished - running + to_come, cfg.budget)
    batches = 1 + c.running * cfg.priority  # a preemption by priority gives back what its victim took of the batch
    per_batch = cfg.num_groups * (batches * (cfg.budget // cfg.shortest_block) + 2 * cfg.max_running)
    hits = (max(admissible, 0) + most_loads(e.host, c)) * cfg.num_groups * cfg.blocks_per_request
    return most_host_events(e.host, c) + 2 * (c.held + hits) + 6 * per_batch + 8 * cfg.max_running + 4 * to_come + 4 * e.actions.size + 64


@inline
def has_room(e, cfg, c):
    """Whether all logs can take one more turn; else ``c.need_events`` says how many event rows must be free."""
    c.need_events = 0
    c.need_slots = not has_slots(e.host, e, cfg, c)
    if c.need_slots:
        return False
    if cfg.kv_events and c.logged_kv + cfg.kv_events > e.kv_keys.size:
        return False
    if cfg.log:
        need = most_events(e, cfg, c)
        c.need_events = need
        if c.logged_rows + need > e.log.size or c.logged_blocks + need > e.log_blocks.size:
            return False
        if c.logged_keys + need > e.log_keys.size or c.events > cfg.max_events:
            return False
    if c.logged_ticks >= e.ticks.size:
        return False
    return c.logged_steps < e.steps.size and c.logged_gaps + 2 * cfg.max_running <= e.gaps.size
