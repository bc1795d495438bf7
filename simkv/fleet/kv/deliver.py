"""Known KV events of any number of replicas, from where they wait into an index, in one call. Compiled."""

from __future__ import annotations

from simkv.fleet.kv.address import array_at
from simkv.fleet.kv.compiled import entry
from simkv.fleet.kv.direct import KEY, KIND
from simkv.fleet.kv.index import Index, apply_from


@entry
def deliver(feeds, which, known, progress, rows, places, meta, scratch, orders):
    """The next ``known[slot]`` events of each replica in ``which``. Whether all are in.

    Otherwise a table is full: ``progress`` (i8[2]; zeros to begin with) says how many replicas are done, and how many events of the
    next one; called again, it goes on there.
    """
    ix = Index(rows, places, meta, scratch, orders)
    while progress[0] < which.size:
        slot = which[progress[0]]
        f, n = feeds[slot], known[slot]
        kinds = array_at(f.kinds, f.capacity, KIND)[f.head : f.head + n]
        keys = array_at(f.pending, f.capacity, KEY)[f.head : f.head + n]
        progress[1] = apply_from(ix, slot, kinds, keys, progress[1])
        if progress[1] < n:
            return False
        progress[0] += 1
        progress[1] = 0
    return True
