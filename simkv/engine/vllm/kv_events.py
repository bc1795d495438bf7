"""KV events as the engine itself knows them: content entered its cache, or left it. Written only where a router wants them.

Content counts as stored while at least one block has it, as Dynamo's and llm-d's filters do: twins are no events. The same
can be told from the event log (simkv/fleet/kv/feed.py), row by row and with tables of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simkv.engine.vllm.compiled import inline

if TYPE_CHECKING:
    from simkv.engine.resolve import Resolved

KV_ARRAYS = ("kv_kinds", "kv_keys", "kv_turns")
"""What each event is, whose, and in which turn (its STEP row) it happened; ``logged_kv`` of them wait to be read."""


@inline
def emit_kv(e, c, kind, key):  # type: ignore[no-untyped-def]
    """Append one KV event; the caller has checked ``config.kv_events``, and the turn has reserved room."""
    at = c.logged_kv
    e.kv_kinds[at] = kind
    e.kv_keys[at] = key
    e.kv_turns[at] = c.kv_turn
    c.logged_kv = at + 1


def most_kv_events(s: Resolved, actions: int) -> int:
    """Upper bound of the KV events one turn can write: ``CONFIG.kv_events``, 0 where none are written.

    Blocks fill up: those of a batch, twice where a partial one is completed, and one more per request when its output comes. A
    preemption by priority gives back what the victim took of the batch, so every running request may have had all of it. What was
    there before or was filled up can lose its content; a reset is one event.
    """
    batches = 1 + (s.max_running if s.policy == "priority" else 0)
    filled = batches * (s.max_num_batched_tokens // s.block_size) + 4 * s.max_running
    return s.num_gpu_blocks + 2 * filled + actions + 64


def writes_kv_events(s: Resolved) -> bool:
    """Whether every key of the cache is one that routers hear of: one KV group whose blocks have one key each."""
    return len(s.groups) == 1 and (s.groups[0].block_size or s.block_size) == s.hash_block_size
