"""State of the host tier as structured numpy arrays. Nothing here is compiled.

A *chunk* is the unit of the native tier: ``blocks_per_chunk`` blocks under the key of its last one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simkv.engine.vllm.layout import record

NATIVE, EAGER, LAZY = 1, 2, 3
"""Connectors: OffloadingConnector, SimpleCPUOffloadConnector, and that with ``lazy_offload``."""
STEPS, SECONDS = 0, 1
"""How long a transfer takes: a number of steps (recorded runs), or bytes over bandwidth."""
STORE, LOAD = 0, 1
"""Directions, each a queue of its own."""
NOT_LOADING, LOADING, LOADED = range(3)

HOST_CONFIG = record(
    i8="connector chunks blocks_per_chunk chunk_tokens arc threshold tracked prompt_only defer mode trace lookahead",
    f8="latency_store latency_load fixed_store_s fixed_load_s block_store_s block_load_s",
)
"""``defer``: blocks freed while a step that computes on them is in flight wait for its output (async scheduling).
``latency_*``: steps a job takes (mode STEPS). A job takes fixed + blocks * block seconds in mode SECONDS.
``lookahead``: free-queue entries a lazy store looks at."""

HOST_COUNTERS = record(
    f8="store_free load_free waited",
    i8="requests queries hits recompute_requests recompute_queries recompute_hits lookups postponed"
    " loads load_blocks stores store_blocks stored refused skipped removed flushed resets"
    " held ended victims delayed deferred_head deferred_len scheduled processed worker_steps"
    " jobs spare_jobs job_number fenced loading flushing crashed traced",
)
"""Statistics, then state. Tokens: queries, hits (and recomputed requests'); chunks: ``stored`` (written), ``skipped`` (below
the store threshold), ``removed`` (evicted); offers ``refused``; jobs ``flushed``; seconds ``waited`` for them. ``held``:
requests in the holding queue; ``ended``: finished since the last schedule(); ``delayed``: aborted while loading; ``loading``:
device blocks that loads write to; ``jobs``: transfers the connector waits for; ``fenced``: of those, stores whose request has
ended; ``scheduled``, ``processed``: steps with work, for deferred frees."""

HOST_STATISTICS = (
    "requests",
    "queries",
    "hits",
    "recompute_requests",
    "recompute_queries",
    "recompute_hits",
    "lookups",
    "postponed",
    "loads",
    "load_blocks",
    "stores",
    "store_blocks",
    "stored",
    "refused",
    "skipped",
    "removed",
    "flushed",
    "resets",
)
"""Those of them that count what happened."""

HOST_REQUEST = record(
    i8="first_chunk",
    i4="loading slot prefilling last_step local external next_chunk jobs book generation used signaled gone"
    " max_load max_store end_tokens hit_local hit_host local_now load_first load_blocks load_next known store_from store_events pinned",
)
"""What scheduler and connector remember of a request. ``slot``: while it holds blocks without running; ``book``: slot whose
table the connector still knows, -1 if none; ``next_chunk``: first chunk not yet offered; ``local``: device hit of the last
lookup; ``gone``: forgotten by the connector; ``hit_local``, ``hit_host``: first admission; ``local_now``: the present one.
Simple: ``known`` if it may store, ``pinned`` host blocks found, ``store_from`` first block not yet looked at, ``load_*`` the
load in flight."""

HOST_STEP = record(i8="queries hits recompute_queries recompute_hits", i4="held loading pinned occupied jobs removed")
"""One row per turn of the engine's loop, beside its STEP row, as things stand at the turn's end: tokens asked of the host tier
and found so far; requests in the holding queue, device blocks that loads write to, host chunks that transfers hold, chunks
with content or being written, transfers under way, chunks evicted so far."""
BOOK = record(i4="length keep")
"""Of a slot: entries of its table that the connector has seen, and how many still need the slot after its request left it."""
DEFERRED = record(i8="step", i4="slot length req")
"""Blocks that return to the pool once the output of ``step`` has been processed."""
JOB = record(f8="end", i8="number", i4="req direction first stop head blocks flush fenced stale next before after chunks")
"""One transfer. Native: chunks ``first`` … ``stop - 1`` of the request (load), or the chunks chained from ``head`` (store).
``flush``: bit b = batch b waits for it; ``next``: behind it in its queue; ``before``, ``after``: jobs by number."""
QUEUE = record(i4="head tail")

NODE = record(u8="key", i8="stamp", i4="ref chunk place previous next job_next offer loading")
"""A chunk, or an ARC ghost (``chunk`` -1). ``ref``: -1 being written, 0 evictable, else readers. Entry 0 is no node,
entries 1 … 4 are the heads of the lists T1, T2, B1, B2; least recently used first."""
T1, T2, B1, B2 = 1, 2, 3, 4
FIRST_NODE = 5
TRACKED = record(u8="key", i8="stamp", i4="count previous next")
"""How often a key was offered; entry 0 is none, entry 1 the head of the list, oldest first."""
MANAGER = record(
    f8="p",
    i8="p_whole fresh free evictable pending spare tracked spare_tracked stamp generation skipped wanted evicted",
)
"""``fresh``: chunk ids never used begin here; ``free``: length of the stack of freed ones; ``p``: ARC's target size of T1.
Of the last offer: ``wanted`` chunks that were new, ``evicted`` ones it pushed out (``picks``)."""

SEEN, INSERTED, REUSED, MISSED = 1, 2, 4, 8
"""What a request did with each of its chunks since the last reset, one byte a chunk."""


class Chunks(NamedTuple):
    """The native tier's chunk manager. C chunks."""

    manager: np.ndarray  # MANAGER[1]
    nodes: np.ndarray  # NODE[]
    table: np.ndarray  # u8[2^k] open addressing as in vllm/pool.py
    sizes: np.ndarray  # i8[5] nodes in each list
    free: np.ndarray  # i4[C] stack of freed chunk ids
    spare: np.ndarray  # i4[] stack of unused nodes
    tracked: np.ndarray  # TRACKED[]
    tracked_table: np.ndarray  # u8[2^k]
    spare_tracked: np.ndarray  # i4[]
    flags: np.ndarray  # u1[chunks of all requests]
    offer: np.ndarray  # u8[] keys of the present call
    places: np.ndarray  # i8[] and where their flags stand
    picks: np.ndarray  # i4[C] nodes chosen for eviction, then their chunk ids
    picked_keys: np.ndarray  # u8[C] their keys
    taken: np.ndarray  # i4[] nodes of the present offer that are to be stored


class Native(NamedTuple):
    """OffloadingConnector, scheduler side."""

    chunks: Chunks
    sources: np.ndarray  # i4[C * blocks per chunk] device blocks a chunk is written from
    fences: np.ndarray  # i4[device blocks] stores still reading a block whose request has ended
    marks: np.ndarray  # i8[device blocks] step in which a block was handed out


class Simple(NamedTuple):
    """SimpleCPUOffloadConnector: a second pool of blocks, block 0 reserved."""

    blocks: np.ndarray  # BLOCK[N]
    table: np.ndarray  # u8[2^k]
    pool: np.ndarray  # SIMPLE_POOL[1]
    source: np.ndarray  # i4[N] device block a host block is written from
    owner: np.ndarray  # i4[N] request whose part of a store begins with this block, -1: none
    behind: np.ndarray  # i4[N] next host block of the same store
    storing: np.ndarray  # u1[device blocks] being stored (eager)
    chosen: np.ndarray  # i4[] device blocks of the present call
    pins: np.ndarray  # i4[n] requests with pinned host blocks, oldest first


SIMPLE_POOL = record(
    i8="free cached occupied num_pins cursor chain_head chain_tail chain_len pending_blocks step_load last_load"
    " load_events store_events live_stores live_loads"
)
"""``chain_*``: the store in the making, a chain of host blocks; ``cursor``: device block a lazy store looked at last, -1;
``step_load``, ``last_load``: this step's load and the last request in it; ``live_*``: stores, and requests that load."""


class Host(NamedTuple):
    """What a connector adds to the scheduler. S slots."""

    config: np.ndarray  # HOST_CONFIG[1]
    counters: np.ndarray  # HOST_COUNTERS[1]
    reqs: np.ndarray  # HOST_REQUEST[n]
    hold: np.ndarray  # i4[S] requests that hold blocks without running, in order
    ended: np.ndarray  # i4[n]
    victims: np.ndarray  # i4[S] preempted since the last schedule()
    books: np.ndarray  # BOOK[S]
    deferred: np.ndarray  # DEFERRED[2^k] ring
    jobs: np.ndarray  # JOB[]; entry 0: head of the list by number
    spare_jobs: np.ndarray  # i4[]
    queues: np.ndarray  # QUEUE[]: copying store, load; stores to submit; then per batch its stores and loads
    steps: np.ndarray  # HOST_STEP[T]
    done: np.ndarray  # i4[] jobs that have just ended
    keys: np.ndarray  # u8[] a request's keys, where it has no slot
    trace: np.ndarray  # i8[] calls of the connector, for recorded runs


COPYING, SUBMIT, GIVEN = 0, 2, 3
"""Places in ``Host.queues``: + direction; stores waiting for the next step; + 2 * batch + direction."""
