"""How often content was offered to the host tier (``store_threshold``): the newest ``max_tracker_size`` keys are counted."""

from __future__ import annotations

from simkv.engine.offload.compiled import inline, splice
from simkv.engine.vllm.pool import delete_position, entry_at, find_position, tagged

HEAD = 1


@inline
def find_tracked(k, key):
    return entry_at(k.tracked_table, find_position(k.tracked, k.tracked_table, key))


@inline
def untrack(k, x):
    entry = k.tracked[x]
    k.tracked[entry.previous].next = entry.next
    k.tracked[entry.next].previous = entry.previous


@inline
def track_last(k, x):
    last = k.tracked[HEAD].previous
    k.tracked[x].previous = last
    k.tracked[x].next = HEAD
    k.tracked[last].next = x
    k.tracked[HEAD].previous = x


@splice
def count_offer(k, most, count):
    """Count the keys of the present offer; entries of this offer are not dropped for its other keys."""
    m = k.manager[0]
    known = 0
    for i in range(count):
        x = find_tracked(k, k.offer[i])
        if x > 0:
            untrack(k, x)
            track_last(k, x)
            k.tracked[x].count += 1
            known += 1
    others = m.tracked - known
    for i in range(count):
        key = k.offer[i]
        if find_tracked(k, key) > 0:
            continue
        if m.tracked >= most:
            if others == 0:
                continue
            old = k.tracked[HEAD].next
            untrack(k, old)
            delete_position(k.tracked_table, find_position(k.tracked, k.tracked_table, k.tracked[old].key))
            k.spare_tracked[m.spare_tracked] = old
            m.spare_tracked += 1
            m.tracked -= 1
            others -= 1
        m.spare_tracked -= 1
        x = k.spare_tracked[m.spare_tracked]
        k.tracked[x].key = key
        k.tracked[x].count = 1
        k.tracked_table[find_position(k.tracked, k.tracked_table, key)] = tagged(key, x)
        track_last(k, x)
        m.tracked += 1


@inline
def times_offered(k, key):
    x = find_tracked(k, key)
    return k.tracked[x].count if x > 0 else 0
