"""More slots for a replica with a host tier: more requests load, or wait with a table still read, than it began with."""

from __future__ import annotations

from typing import Any

import numpy as np

from simkv.engine.vllm.layout import Engine, power_of_two, zeros


def more_slots(e: Engine, c: Any) -> Engine:
    """The state with twice the slots; ``c`` is the record of counters."""
    old = len(e.slots)
    new = 2 * old
    host, hc = e.host, e.host.counters[0]
    ring = zeros(power_of_two(2 * new), host.deferred.dtype)
    places = (int(hc.deferred_head) + np.arange(int(hc.deferred_len))) & (len(host.deferred) - 1)
    ring[: len(places)] = host.deferred[places]
    hc.deferred_head = 0
    free = np.zeros(new, e.free_slots.dtype)
    left = int(c.free_slots)
    free[: new - old] = np.arange(new - 1, old - 1, -1)
    free[new - old : new - old + left] = e.free_slots[:left]
    c.free_slots += new - old
    host = host._replace(deferred=ring, **{name: _longer(getattr(host, name), new) for name in ("hold", "victims", "books")})
    more = {name: _longer(getattr(e, name), new) for name in ("slots", "lengths", "tables", "keys", "victims")}
    return e._replace(host=host, free_slots=free, **more)


def _longer(array: Any, n: int) -> Any:
    out = np.zeros((n, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out.view(np.recarray) if array.dtype.names else out
