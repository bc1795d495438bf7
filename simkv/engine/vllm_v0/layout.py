"""All state of a vLLM V0 replica as a handful of structured numpy arrays. Nothing here is compiled.

A request is a *sequence group*: one sequence while it waits for its prompt step, ``best_of`` afterwards. Its sequences
live in *lanes* 0 … best_of-1 of the request's slot; a lane owns a row of ``tables`` and, in the event log, a group number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


def _record(**kinds: str) -> np.dtype[Any]:
    return np.dtype([(name, kind) for kind, names in kinds.items() for name in names.split()], align=True)


CONFIG = _record(
    u8="seed resampling",  # a draw below ``resampling`` takes a random parent
    i8="num_blocks num_cpu_blocks block_size width beam recorded max_running max_num_seqs budget max_paddings max_model_len prompt_limit"
    " watermark swap_always priority virtual log mode max_events",
    f8="swap_block_s a b c overhead_s flops_per_token flops_per_token_context weight_bytes kv_bytes_per_token peak_flops bandwidth",
)
"""Settings as numbers; the last fields say how long a step takes (simkv/engine/step_time_layout.py). Block 0 is never used:
it stands for no block, as in the other engines."""
COUNTERS = _record(
    f8="now last_end entry_seconds block_seconds next_turn",
    i8="steps batches turns tokens finished aborted rejected preemptions stored removed requests queries hits"
    " recompute_requests recompute_queries recompute_hits events logged_rows logged_blocks logged_keys logged_steps logged_gaps"
    " need_events free cpu_free cached held cpu_held next_arrival next_action timers wait_head wait_len running swapped unfinished"
    " free_slots rows prompt_step padded in_flight phase empty_schedules"
    " copies forks swapped_out swapped_in swap_moved stamp failed_req failed_need entry_steps block_steps",
)
"""``held`` and ``cpu_held`` count table entries, so ``held`` minus the blocks in use is what sharing saves; ``entry_seconds``
and ``block_seconds`` are these two summed over the time steps take, ``entry_steps`` and ``block_steps`` over steps."""
SLOT = _record(f8="last_time", i4="req num_tokens num_prompt last_tokens num_seqs length last_batch")
"""A group that has been admitted: tokens known of each of its sequences, sequences alive, entries of each of their tables.
All sequences of a group are equally long at all times."""


class State(NamedTuple):
    """A replica. N blocks, C blocks of the host, n requests, S groups at most, K sequences a group, W blocks a sequence."""

    reqs: np.ndarray  # REQUEST[n] (simkv/engine/vllm/layout.py) in arrival order
    actions: np.ndarray  # ACTION in order of time
    queue: np.ndarray  # QUEUE[2^k]
    running: np.ndarray  # i8[S] slots, in order of arrival once preemption has looked at them
    swapped: np.ndarray  # i8[S] slots whose blocks are in host memory
    free_slots: np.ndarray  # i8[S] stack
    slots: np.ndarray  # SLOT[S]
    order: np.ndarray  # i4[S, K] lanes in the order in which the engine knows the group's sequences
    tables: np.ndarray  # i4[S*K, W] block tables of the lanes
    ref: np.ndarray  # i4[N]
    free: np.ndarray  # i4[N] stack of free blocks, the top is taken next
    cpu_ref: np.ndarray  # i4[C]
    cpu_free: np.ndarray  # i4[C] the same in host memory
    moved_to: np.ndarray  # i4[max(N, C)] where a block went in the swap named by ``moved_in``
    moved_in: np.ndarray  # i8[max(N, C)]
    parents: np.ndarray  # i4[2K] beams the candidates of one step descend from
    descent: np.ndarray  # i4[3, 2K] scratch of one beam step
    recorded: np.ndarray  # i4[rows, 2K] parents given from outside
    first_recorded: np.ndarray  # i8[n+1] rows of each request
    rows: np.ndarray  # i8[S] slots in this step's batch
    log: np.ndarray  # EVENT[L] packed rows (simkv/events/packed.py)
    log_blocks: np.ndarray  # i4[B] blocks of the runs in ``log``
    log_keys: np.ndarray  # u8[1] unused: nothing is cached
    steps: np.ndarray  # STEP[T]
    gaps: np.ndarray  # GAP[g]
