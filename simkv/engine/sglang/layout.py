"""All state of an SGLang engine replica as a handful of structured numpy arrays. Nothing here is compiled.

Positions and sizes inside the tree and the pool are counted in pages; a request's are counted in tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

SCHEDULE_POLICIES = ("fcfs", "lpm", "random", "dfs-weight", "lof", "routing-key", "hrrn", "shortest-prefill-first")
FCFS, LPM, RANDOM, DFS_WEIGHT, LOF, ROUTING_KEY, HRRN, SHORTEST_PREFILL = range(8)
EVICTION_POLICIES = ("lru", "lfu", "slru", "priority", "tlru", "fifo", "filo", "mru")
LRU, LFU, SLRU, PRIORITY, TLRU, FIFO, FILO, MRU = range(8)

NOT_ARRIVED, WAITING, RUNNING, FINISHED, ABORTED, REJECTED = range(6)

NO_BATCH, PREFILL, DECODE = range(3)
"""What the last batch was; a prefill batch may carry decode rows (mixed chunk)."""
ROOT = 0
NONE = -1


def _record(f8: str = "", u8: str = "", i8: str = "", i4: str = "") -> np.dtype[Any]:
    fields = [(name, kind) for kind, names in (("f8", f8), ("u8", u8), ("i8", i8), ("i4", i4)) for name in names.split()]
    return np.dtype(fields, align=True)


CONFIG = _record(
    i8="num_pages page capacity max_running max_prefill chunk prefill_max_requests policy eviction mixed priority low_first"
    " preemption preemption_threshold retract_by_priority caching protected_threshold tlru_threshold tlru_estimate"
    " checkpoint_mixed max_input row_pages virtual log mode max_events given_order keep_order reset_ratio",
    f8="ratio_init ratio_min ratio_decay a b c overhead_s flops_per_token flops_per_token_context weight_bytes kv_bytes_per_token"
    " peak_flops bandwidth",
)
"""Settings as numbers. ``chunk`` and ``prefill_max_requests``: -1 = no limit. ``checkpoint_mixed``: decode rows of a mixed batch
enter the tree at once, as in the recorded runs; the server leaves that to the end of the request, and with ``reset_ratio`` it
forgets new_token_ratio whenever it has nothing to do."""

COUNTERS = _record(
    f8="now ratio total_offset current_offset next_turn",
    i8="steps batches turns tokens finished aborted rejected preemptions stored removed requests queries hits"
    " recompute_requests recompute_queries recompute_hits events"
    " logged_rows logged_blocks logged_keys logged_steps logged_ticks logged_gaps"
    " need_rows need_blocks need_keys wait_pages free cached running wait_len"
    " next_arrival next_action timers unfinished phase empty_schedules"
    " free_head free_len pending segments grouped nodes free_node clock evictable protected arena_at arena_half heap_len"
    " victims evicted wait_head free_slots in_running batch_n last_kind chunked full rem_input rem_chunk processed"
    " entries touches passes retracted requeued ordered ordered_n failed held states new_chunked batch_held",
)
"""``free``: pages no live request holds (in the free list, or cached and unlocked); ``free_len``: the free list alone.
``running``: unfinished requests that hold a row; ``in_running``: entries of the running list."""

NODE = _record(
    u8="key",
    i8="stamp created priority order run",
    i4="at pages depth slots parent first last prev next children lock hits heap namespace history weight queue pass_of",
)
"""A node of the radix tree and the edge to it. Node 0 is the root, and 0 stands for no node in links.

``run`` and ``at``: where its tokens begin in the runs of all requests; ``pages`` of them at ``depth`` pages from the root;
``slots``: where its page ids begin in the arena. ``stamp``: recency; ``heap``: place in the eviction heap, -1 if not there;
``history``: deepest end ever below it (tlru). ``weight``, ``queue``, ``pass_of``: scratch of dfs-weight."""

REQUEST = _record(
    f8="arrive tie scheduled first_token last_token finish",
    u8="root",
    i8="first_run first_image entered arrival_processed priority last_batch",
    i4="num_prompt num_output max_new generated namespace head status slot hit preempted name_rank first_after next_after chained"
    " ignore_eos prefix extend_end matched committed protected inserted lock last_node middle_chunks deferred link num_images filled"
    " to_abort",
)
"""``max_new``: max_new_tokens after the intake's clip, ``num_output``: tokens it will generate. ``prefix``: tokens computed
or found; ``protected``, ``inserted``: leading pages the tree owns, that this request has inserted. ``head``: equal for equal first
tokens in one namespace (in-batch prefixes), -1 if shorter. ``entered``: when it last entered the queue, a running number."""

QUEUE = _record(i8="timer", i4="waiting")
STATE = _record(f8="left", i4="occupied")
"""ignore_eos without a cache: tokens a request still generates, and tokens that are free after that."""
ROW = _record(i4="req prefix n decode")
"""One request of a batch: ``n`` tokens computed on top of ``prefix``."""
VICTIM = _record(i8="run", i4="at depth pages first")
"""A node evicted in this step: its content, place in the prompt, and where its page ids begin in ``evicted``."""
SEGMENT = _record(i4="req first n")
"""One call to the allocator inside a free group."""
OPERATION = _record(i8="first_run", i4="kind tokens namespace name n priority matched new got failed victims")
"""A cache operation without a scheduler, and what came of it."""
MATCH, INSERT, LOCK, UNLOCK, EVICT, RESET = range(6)
OPERATION_KINDS = ("match", "insert", "lock", "unlock", "evict", "reset")


class Engine(NamedTuple):
    """A replica. N pages, n requests, S running at most, W pages per request at most."""

    nodes: np.ndarray  # NODE[N + 2]
    table: np.ndarray  # u8[2^k] open addressing, 0 = empty: lower half of a child's key, then the child
    heap: np.ndarray  # i4[N + 2] unlocked leaves, next victim first
    arena: np.ndarray  # i4[2, A] page ids of the nodes, one half in use
    free: np.ndarray  # i4[2^k] ring: the free list, head first
    pending: np.ndarray  # i4[N + 1] pages given back inside a free group
    segments: np.ndarray  # SEGMENT[N + 1]
    victims: np.ndarray  # VICTIM[N + 1]
    evicted: np.ndarray  # i4[N + 1]
    reqs: np.ndarray  # REQUEST[n] in arrival order
    runs: np.ndarray  # RUN[m]
    tokens: np.ndarray  # i4 explicit token ids
    images: np.ndarray  # IMAGE
    actions: np.ndarray  # ACTION in order of time
    queue: np.ndarray  # QUEUE[2n + 2]
    heads: np.ndarray  # i8[heads] pass that last saw a request with these first tokens
    running: np.ndarray  # i4[S] requests
    free_slots: np.ndarray  # i4[S]
    rows: np.ndarray  # i4[S, W] pages of each running request
    batch: np.ndarray  # ROW[2S]
    sorted: np.ndarray  # i4[max(n, 2S)] scratch
    ordered: np.ndarray  # i4[n + 1] the waiting queue as this pass's policy put it (only while a recording is replayed)
    stack: np.ndarray  # i4[N + 2] scratch: nodes still to visit
    thrown_back: np.ndarray  # i4[S + 1] requests retracted or preempted in this pass
    states: np.ndarray  # STATE[n + S + 1]
    keys: np.ndarray  # u8[W] scratch: chain keys for the log
    random: np.ndarray  # u4[625] state of the generator of schedule_policy=random
    log: np.ndarray  # EVENT[L] packed rows (simkv/events/packed.py)
    log_blocks: np.ndarray  # i4[B] blocks of the runs in ``log``
    log_keys: np.ndarray  # u8[K]
    steps: np.ndarray  # STEP[T] packed rows (simkv/events/turns.py)
    ticks: np.ndarray  # TICK[t] of turns that share a row
    gaps: np.ndarray  # GAP[g]


def zeros(n: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Zeroed record array: fields by attribute, compiled or interpreted."""
    return np.zeros(n, dtype).view(np.recarray)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n`` and 16."""
    return 1 << max(4, int(n - 1).bit_length())
