"""The host tier's arrays for one workload, every one sized and filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simkv.engine.offload import layout
from simkv.engine.offload.build_chunks import build_chunks
from simkv.engine.offload.resolve import Offload
from simkv.engine.vllm.layout import BLOCK, power_of_two, zeros
from simkv.workload.workload import Workload

if TYPE_CHECKING:
    from simkv.engine.resolve import Resolved


def most_slots(o: Offload, s: Resolved, n: int) -> int:
    """Slots a replica starts with: running requests, loading ones, and tables somebody still reads. More are made if need be."""
    return 4 * s.max_running + min(n, s.num_gpu_blocks // o.blocks_per_chunk) + 16


def build_host(w: Workload, s: Resolved, o: Offload, slots: int, longest: int, timed: bool, steps: int) -> dict[str, Any]:
    """``host`` and the connector's state, as fields of the engine's state."""
    n, size = len(w), o.blocks_per_chunk * s.block_size
    config = zeros(1, layout.HOST_CONFIG)
    for name, value in _config(s, o, timed).items():
        config[0][name] = value
    reqs, flags = _requests(w, s, size)
    jobs = 3 * (o.chunks + slots) + 16
    counters = zeros(1, layout.HOST_COUNTERS)
    counters[0].spare_jobs = jobs
    i4 = np.int32
    host = layout.Host(
        config=config,
        counters=counters,
        reqs=reqs,
        hold=np.zeros(slots, i4),
        ended=np.zeros(n + 1, i4),
        victims=np.zeros(slots, i4),
        books=zeros(slots, layout.BOOK),
        deferred=zeros(power_of_two(2 * slots), layout.DEFERRED),
        jobs=zeros(jobs + 1, layout.JOB),
        spare_jobs=np.arange(jobs, 0, -1, dtype=i4),
        queues=zeros(layout.GIVEN + 4, layout.QUEUE),
        steps=zeros(steps, layout.HOST_STEP),
        done=np.zeros(jobs, i4),
        keys=np.zeros(longest // s.hash_block_size + 2, np.uint64),
        trace=np.zeros(1, np.int64),
    )
    if o.connector == "simple":
        return {"host": host, "plain": None, "native": None, "simple": _simple(n, s, o, longest)}
    chunks = build_chunks(
        o.chunks,
        arc=o.policy == "arc",
        tracked=o.max_tracker_size if o.store_threshold >= 2 else 0,
        flags=flags,
        longest_offer=longest // size,
    )
    native = layout.Native(
        chunks=chunks,
        sources=np.zeros(o.chunks * o.blocks_per_chunk, i4),
        fences=np.zeros(s.num_gpu_blocks, i4),
        marks=np.zeros(s.num_gpu_blocks, np.int64),
    )
    return {"host": host, "plain": None, "native": native, "simple": None}


def _config(s: Resolved, o: Offload, timed: bool) -> dict[str, Any]:
    return {
        "connector": layout.NATIVE if o.connector == "native" else layout.LAZY if o.lazy else layout.EAGER,
        "chunks": o.chunks,
        "blocks_per_chunk": o.blocks_per_chunk,
        "chunk_tokens": o.blocks_per_chunk * s.block_size,
        "arc": o.policy == "arc",
        "threshold": o.store_threshold,
        "tracked": o.max_tracker_size,
        "prompt_only": o.prompt_only,
        "defer": s.async_scheduling,
        "mode": layout.SECONDS if timed else layout.STEPS,
        "lookahead": 2 * -(-s.max_num_batched_tokens // s.block_size),
        "latency_store": o.store_latency,
        "latency_load": o.load_latency,
        "fixed_store_s": o.job_s,
        "fixed_load_s": o.job_s,
        "block_store_s": o.block_s,
        "block_load_s": o.block_s,
    }


def _requests(w: Workload, s: Resolved, size: int) -> tuple[npt.NDArray[np.void], int]:
    """HOST_REQUEST rows, one more than there are requests, and chunks of all requests together."""
    n = len(w)
    reqs = zeros(n + 1, layout.HOST_REQUEST)
    tokens = np.minimum(w.num_prompt.astype(np.int64) + w.num_output, s.max_model_len)
    reqs["first_chunk"][1:] = np.cumsum(tokens // size)
    reqs["slot"] = reqs["book"] = -1
    for name, column in (("max_load", w.max_load_tokens), ("max_store", w.max_offload_tokens)):
        reqs[name] = -1
        if column is not None:
            reqs[name][:n] = column
    return reqs, int(reqs["first_chunk"][n])


def _simple(n: int, s: Resolved, o: Offload, longest: int) -> layout.Simple:
    i4 = np.int32
    blocks = zeros(o.chunks, BLOCK)
    order = np.arange(o.chunks, dtype=i4)
    blocks["free_next"], blocks["free_prev"] = np.roll(order, -1), np.roll(order, 1)
    pool = zeros(1, layout.SIMPLE_POOL)
    pool[0].free, pool[0].cursor = o.chunks - 1, -1
    return layout.Simple(
        blocks=blocks,
        table=np.zeros(power_of_two(2 * o.chunks), np.uint64),
        pool=pool,
        source=np.zeros(o.chunks, i4),
        owner=np.full(o.chunks, -1, i4),
        behind=np.zeros(o.chunks, i4),
        storing=np.zeros(s.num_gpu_blocks, np.uint8),
        chosen=np.zeros(o.chunks + longest // s.block_size + 2, i4),
        pins=np.zeros(n + 1, i4),
    )
