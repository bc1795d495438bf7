"""All state of a vLLM engine replica as a handful of structured numpy arrays. Nothing here is compiled.

Records for things with several fields, plain arrays for lists of ids; no object per block or per token.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


def record(f8: str = "", u8: str = "", i8: str = "", i4: str = "", size: int | None = None) -> np.dtype[Any]:
    """A record with these fields, widest first; ``size`` fills up to so many bytes."""
    fields = [(name, kind) for kind, names in (("f8", f8), ("u8", u8), ("i8", i8), ("i4", i4)) for name in names.split()]
    if size is not None:
        free = size - sum(np.dtype(kind).itemsize for _, kind in fields)
        fields += [(f"pad{i}", "i4") for i in range(free // 4)]
    return np.dtype(fields, align=True)


CONFIG = record(
    i8="num_blocks max_running budget max_model_len caching hashing chunked threshold watermark reserve_full_isl asynchronous priority"
    " max_loras num_groups num_kinds hash_block scheduler_block retention unhashed_to_front stats_at_lookup split_preempted"
    " virtual log kv_events shortest_block blocks_per_request mode max_events",
    f8="a b c overhead_s flops_per_token flops_per_token_context weight_bytes kv_bytes_per_token peak_flops bandwidth",
)
"""Settings as numbers; the last fields say how long a step takes (simkv/engine/step_time_layout.py)."""
GROUP = record(
    u8="key",  # tells equal content of two groups apart in the key table; 0 for group 0
    i4="block_size window need gate_cap stride next_in_kind extra hit_start hit_len kind_first kind_full kind_found",
)
"""One KV group. window 0 = full attention; ``need`` blocks must stand before a position to resume there; ``stride`` hash
blocks make one block; ``extra`` = full group with blocks bigger than the hash block. ``hit_start``/``hit_len``: last lookup,
entries before ``hit_start`` are null. Groups with equal window and block size form a *kind* and are looked up together; row k
also describes kind k, full attention first: its first group, whether it is full, tokens found (-1 before the search)."""

COUNTERS = record(
    f8="now device_free next_turn",
    i8="steps batches turns tokens finished aborted rejected preemptions stored removed requests queries hits"
    " recompute_requests recompute_queries recompute_hits events logged_rows logged_blocks logged_keys"
    " logged_steps logged_ticks logged_gaps logged_kv kv_turn need_events need_slots"
    " free cached held junction"
    " next_arrival next_action timers wait_head wait_len running unfinished free_slots head_slot head_req"
    " free_entries rows loras stamp in_flight batch phase empty_schedules barren_turns",
)
BLOCK = record(u8="key", i4="ref keys free_next free_prev twin_next twin_prev")
"""32 bytes. Block 0 is the null block and the sentinel of the circular free queue. ``keys``: 0 none, 1 the block's own, more:
also extra ones, the first of which is that entry. Entries beyond the pool hold extra keys: there ``ref`` is the block they
belong to and ``free_next`` that block's next extra key (or the next unused entry)."""
SLOT = record(
    f8="last_time",
    i4="req computed num_tokens num_prompt last_tokens max_tokens quiet in_flight placeholders junction last_batch store_at",
    size=64,
)
"""What the engine knows of an admitted request. ``quiet``: while computed + new tokens stay below, nothing is to be
allocated, registered or trimmed; ``store_at``: while the known tokens stay below, no block is to be registered."""
TABLE = record(i4="length cached trimmed")
"""One group's block table of a slot: entries, full blocks already registered, null entries at its start."""
REQUEST = record(
    f8="arrive tie scheduled first_token last_token finish",
    u8="root",
    i8="first_run first_image",
    i4="num_prompt num_output num_images generated stale drop slot status hit preempted lora skip_cache priority"
    " name_rank first_after next_after chained",
)
"""``tie``: arrival time as the priority queue compares it; then ``name_rank``, the rank of the request's id as text."""
QUEUE = record(i8="waiting skipped timer")
"""``waiting``: ring of requests (fcfs) or heap (priority); ``skipped``: passed over in this step; ``timer``: heap of chained
requests whose predecessor has ended."""
ROW = record(i4="req slot kind computed n sampled")
BATCH = record(f8="start end", i8="rows turn step number")
"""``turn``: row of ``steps``; ``step``: number of the turn, of which a row may stand for several."""

NEW, RESUMED, CONTINUED = range(3)
DENSE = -1
"""``retention`` of a sliding group that keeps every block (prefix_cache_retention_interval = null)."""


class Engine(NamedTuple):
    """A replica. N blocks, n requests, S running at most, G groups, W blocks per request at most."""

    groups: np.ndarray  # GROUP[G]
    blocks: np.ndarray  # BLOCK[N + extra keys]
    table: np.ndarray  # u8[2^k] open addressing, 0 = empty: lower half of a key, then the oldest entry with that key
    reqs: np.ndarray  # REQUEST[n] in arrival order
    runs: np.ndarray  # RUN[m]
    tokens: np.ndarray  # i4 explicit token ids
    images: np.ndarray  # IMAGE
    actions: np.ndarray  # ACTION in order of time
    queue: np.ndarray  # QUEUE[2^k]
    running: np.ndarray  # i8[S] slots in running order
    free_slots: np.ndarray  # i8[S+1] stack
    slots: np.ndarray  # SLOT[S+1]
    lengths: np.ndarray  # TABLE[(S+1)*G]
    tables: np.ndarray  # i4[(S+1)*G, W] block tables
    keys: np.ndarray  # u8[S+1, hash blocks] chain keys
    rows: np.ndarray  # ROW[2, S] what a batch computes
    batches: np.ndarray  # BATCH[2]
    victims: np.ndarray  # i4[S] preempted in this step
    adapters: np.ndarray  # i4[adapters] stamp of the step that runs it
    log: np.ndarray  # EVENT[L] packed rows (simkv/events/packed.py)
    log_blocks: np.ndarray  # i4[B] blocks of the runs in ``log``
    log_keys: np.ndarray  # u8[K]
    steps: np.ndarray  # STEP[T] packed rows (simkv/events/turns.py)
    ticks: np.ndarray  # TICK[t] of turns that share a row
    gaps: np.ndarray  # GAP[g]
    kv_kinds: np.ndarray  # u1[V] KV events that wait to be read (simkv/engine/vllm/kv_events.py)
    kv_keys: np.ndarray  # u8[V]
    kv_turns: np.ndarray  # i4[V]
    host: Any = None  # offload.layout.Host, and its connector's state: one of the next two
    native: Any = None
    simple: Any = None
    plain: Any = True  # None where there is a host tier


def zeros(n: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Zeroed record array: fields by attribute, compiled or interpreted."""
    return np.zeros(n, dtype).view(np.recarray)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n`` and 16."""
    return 1 << max(4, int(n - 1).bit_length())
