"""NVIDIA Dynamo's index of cached blocks where caches lose blocks from the middle (ConcurrentRadixTreeCompressed, 1.6.1). Compiled.

The tree's edges are runs of blocks, and a worker holds a run from its beginning up to some block. So a removed block takes the
rest of its run with it, for good; blocks beyond the run stay, and count again once the gap is closed. When no worker holds a run
to its end, what follows it is cut off.

Here an entry is a block; ``along`` is the next block of its run, 0 at the run's end. Only there a block has children, the first
blocks of other runs; a run with children does not grow any more.
"""

from __future__ import annotations

import numpy as np

from simkv.fleet.kv.compiled import entry, kernel
from simkv.fleet.kv.index import bit_of, drop_entry, find, has, is_empty, new_entry, word_of


@kernel
def add_child(links, parent, x):
    links[x].parent = parent
    links[x].prev = 0
    links[x].next = links[parent].first
    if links[parent].first != 0:
        links[links[parent].first].prev = x
    links[parent].first = x


@kernel
def new_block(ix, key):
    x = new_entry(ix, key)
    link = ix.links[x]
    link.parent = link.along = link.first = link.next = link.prev = 0
    return x


@kernel
def end_of_run(links, x):
    while links[x].along != 0:
        x = np.int64(links[x].along)
    return x


@kernel
def cut_after(links, x):
    """Split a run: what follows block ``x`` becomes a run of its own, the only child."""
    y = np.int64(links[x].along)
    links[x].along = 0
    links[x].first = 0
    add_child(links, x, y)


@kernel
def remove_child(links, x):
    link = links[x]
    if link.prev != 0:
        links[link.prev].next = link.next
    else:
        links[link.parent].first = link.next
    if link.next != 0:
        links[link.next].prev = link.prev


@kernel
def append(ix, w, x, keys, first, last):
    """Blocks ``keys[first:last]`` go on behind block ``x`` in the same run."""
    for i in range(first, last):
        y = new_block(ix, keys[i])
        ix.links[y].parent = x
        ix.links[x].along = y
        ix.rows[y, word_of(w)] |= bit_of(w)
        x = y


@kernel
def add_run(ix, w, parent, keys, first, last):
    """A run of its own below a run's end, or below the root."""
    x = new_block(ix, keys[first])
    add_child(ix.links, parent, x)
    ix.rows[x, word_of(w)] |= bit_of(w)
    append(ix, w, x, keys, first + 1, last)


@kernel
def follow(ix, w, x, keys, first, last):
    """The worker holds a run's blocks from ``x`` on, as far as they are ``keys[first:last]``. Returns (last such block, how many)."""
    done, before = 0, np.int64(0)
    while x != 0 and first + done < last and ix.rows[x, 0] == keys[first + done]:
        ix.rows[x, word_of(w)] |= bit_of(w)
        before, done = x, done + 1
        x = np.int64(ix.links[x].along)
    return before, done


@entry
def store_run(ix, w, parent_key, keys):
    """One store event: blocks ``keys`` behind the block ``parent_key``, 0 for none. Ignored if the worker does not hold that one."""
    links = ix.links
    at, i, n = np.int64(0), 0, keys.size
    if parent_key != 0:
        at = find(ix.table, ix.rows, parent_key)
        if at == 0 or not has(ix.rows, at, w):
            return
        if links[at].along != 0:
            same, x = 0, np.int64(links[at].along)
            while x != 0 and same < n and ix.rows[x, 0] == keys[same]:
                same, x = same + 1, np.int64(links[x].along)
            end = end_of_run(links, at)
            if same == n or (x == 0 and links[end].first == 0):
                follow(ix, w, np.int64(links[at].along), keys, 0, same)
                append(ix, w, end, keys, same, n)
                return
            cut_after(links, at)
    while i < n:
        x = find(ix.table, ix.rows, keys[i])
        if x != 0 and is_empty(ix.rows, x) and links[end_of_run(links, x)].first == 0:
            remove_child(links, x)
            drop_run(ix, x)
            add_run(ix, w, at, keys, i, n)
            return
        if x == 0:
            if at != 0 and links[at].first == 0 and has(ix.rows, at, w):
                append(ix, w, at, keys, i, n)
            else:
                add_run(ix, w, at, keys, i, n)
            return
        x, done = follow(ix, w, x, keys, i, n)
        i += done
        at = x
        if links[at].along != 0 and i < n:
            cut_after(links, at)
            add_run(ix, w, at, keys, i, n)
            return


@entry
def remove_block(ix, w, key):
    """One block of a remove event."""
    x = find(ix.table, ix.rows, key)
    if x == 0 or not has(ix.rows, x, w):
        return
    end = end_of_run(ix.links, x)
    while x != 0 and has(ix.rows, x, w):
        ix.rows[x, word_of(w)] &= ~bit_of(w)
        x = np.int64(ix.links[x].along)
    if is_empty(ix.rows, end):
        cut_off(ix, end)


@kernel
def drop_run(ix, x):
    """Forget a run; returns the first run below it."""
    while True:
        y, below = np.int64(ix.links[x].along), np.int64(ix.links[x].first)
        ix.links[x].first = 0
        drop_entry(ix, x)
        if y == 0:
            return below
        x = y


@kernel
def cut_off(ix, parent):
    """Forget everything below a run's end."""
    links, depth = ix.links, 0
    x = np.int64(links[parent].first)
    links[parent].first = 0
    while True:
        while x != 0:
            ix.stack[depth] = x
            depth += 1
            x = np.int64(links[x].next)
        if depth == 0:
            return
        depth -= 1
        x = drop_run(ix, np.int64(ix.stack[depth]))


@entry
def clear_runs(ix, w):
    """The worker holds nothing any more."""
    for x in range(1, ix.meta[0].used + 1):
        ix.rows[x, word_of(w)] &= ~bit_of(w)
    for x in range(1, ix.meta[0].used + 1):
        if ix.links[x].first != 0 and is_empty(ix.rows, x):
            cut_off(ix, x)
