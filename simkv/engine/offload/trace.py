"""What the connector does, call by call, as numbers: recorded runs are compared with it. Off unless somebody asks."""

from __future__ import annotations

from simkv.engine.offload.compiled import kernel

T_GET, T_ALLOC, T_PIN, T_OFFER, T_ENDED, T_RESET, T_LOADED, T_STORED = range(1, 9)
"""Trace records, each followed by its numbers (simkv/conformance/offload_trace.py)."""
T_SUBMIT, T_WAIT, T_DONE, T_RECEIVED = 20, 21, 22, 23
"""Trace records: direction and number; direction, count, numbers; direction and number; request."""


@kernel
def note(h, x):
    """Write one number of the trace, for recorded runs."""
    if h.config[0].trace and h.counters[0].traced < h.trace.size:
        h.trace[h.counters[0].traced] = x
        h.counters[0].traced += 1
