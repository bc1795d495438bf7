"""The radix tree: matching, splitting, inserting, locking (mem_cache/unified_cache/unified_tree_core.py, 0.5.23).

An edge is a run of pages. Only the order of time stamps counts: a match stamps its path from the leaf up, each ancestor
a little older; an insert stamps on the way down.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import kernel, splice
from simkv.engine.sglang.content import advance_by, common_tokens
from simkv.engine.sglang.evict import update_leaf
from simkv.engine.sglang.layout import ROOT
from simkv.engine.sglang.links import HALF, U, append_child, child_key, enter, find_child, find_place, new_node, take_place, tick
from simkv.engine.sglang.log import emit, emit_pages, log_stored
from simkv.engine.sglang.pages import give_back
from simkv.events import layout as ev


@kernel
def split(e, cfg, c, child, pages):
    """A new node takes the first ``pages`` of a child's edge; the child keeps the rest, and its identity. Returns the new node."""
    n = new_node(e, c)
    node, rest = e.nodes[n], e.nodes[child]
    node.priority = rest.priority
    node.hits = rest.hits
    node.created = rest.created
    node.lock = rest.lock
    node.history = rest.history
    node.namespace = rest.namespace
    node.run = rest.run
    node.at = rest.at
    node.pages = pages
    node.depth = rest.depth
    node.slots = rest.slots
    place = find_place(e.nodes, e.table, rest.key)
    node.key = rest.key
    e.table[place] = (node.key << HALF) | U(n)
    take_place(e.nodes, n, child)
    rest.run, rest.at = advance_by(e.runs, np.int64(rest.run), np.int64(rest.at), pages * cfg.page)
    rest.pages -= pages
    rest.depth += pages
    rest.slots += pages
    rest.key = child_key(e, cfg, n, np.int64(0), np.int64(rest.run), np.int64(rest.at))
    enter(e.nodes, e.table, child)
    append_child(e.nodes, n, child)
    rest.stamp = tick(c)
    update_leaf(e, cfg, c, child)
    return n


@kernel
def match(e, cfg, c, run, namespace, pages):
    """Longest cached prefix of ``pages`` pages of content: ``(pages found, last node)``. Splits where it ends, and touches its path."""
    if pages <= 0 or not cfg.caching:
        return 0, ROOT
    n, done, at = np.int64(ROOT), 0, np.int64(0)
    while done < pages:
        child = find_child(e.nodes, e.table, child_key(e, cfg, n, namespace, run, at))
        if child == 0:
            break
        edge = e.nodes[child]
        most = min(np.int64(edge.pages), pages - done)
        same = common_tokens(e.runs, e.tokens, np.int64(edge.run), np.int64(edge.at), run, at, most * cfg.page) // cfg.page
        done += same
        if same < edge.pages:
            n = split(e, cfg, c, child, same)
            break
        n = child
        if done < pages:
            run, at = advance_by(e.runs, run, at, same * cfg.page)
    stamp = tick(c)
    x = n
    while x != ROOT:
        e.nodes[x].stamp = stamp
        stamp -= 1
        x = np.int64(e.nodes[x].parent)
    update_leaf(e, cfg, c, n)
    return done, n


@kernel
def insert(e, cfg, c, r, run, namespace, pages, row, owned, inserted, priority):
    """Make the first ``pages`` pages of content known, held in ``row``. Returns ``(pages known before, last node)``.

    Where the tree has a page already the row's own is given back, from page ``owned`` on, and the row takes the tree's.
    A node counts a hit if it ends beyond page ``inserted``.
    """
    if not cfg.caching:
        return 0, ROOT
    n, done, at = np.int64(ROOT), 0, np.int64(0)
    while done < pages:
        key = child_key(e, cfg, n, namespace, run, at)
        child = find_child(e.nodes, e.table, key)
        if child == 0:
            break
        edge = e.nodes[child]
        edge.stamp = tick(c)
        most = min(np.int64(edge.pages), pages - done)
        same = common_tokens(e.runs, e.tokens, np.int64(edge.run), np.int64(edge.at), run, at, most * cfg.page) // cfg.page
        n = child
        if same < edge.pages:
            n = split(e, cfg, c, child, same)
        node = e.nodes[n]
        node.priority = max(node.priority, priority)
        adopt(e, cfg, c, r, row, done, done + same, max(owned, done), node.slots)
        done += same
        node.hits += done > inserted
        update_leaf(e, cfg, c, n)
        if done < pages:
            run, at = advance_by(e.runs, run, at, same * cfg.page)
    known = done
    if done < pages:
        n = add_leaf(e, cfg, c, r, n, run, at, namespace, done, pages, row, priority)
        e.nodes[n].hits += pages > inserted
        update_leaf(e, cfg, c, n)
    return known, n


@splice
def adopt(e, cfg, c, r, row, first, last, own, slots):
    """Give back the row's own pages ``own … last-1`` and hold the node's in their place; the node begins at page ``first``."""
    if own >= last:
        return
    give_back(e, cfg, c, r, row, own, last)
    arena = e.arena[c.arena_half]
    for i in range(own, last):
        row[i] = arena[slots + i - first]
    if cfg.log:
        emit(c, e.log, ev.ADOPTED, 0, r, own)
        emit_pages(e, c, ev.HIT, r, row, own, last - own)


@splice
def add_leaf(e, cfg, c, r, parent, run, at, namespace, first, last, row, priority):
    """A leaf for pages ``first … last-1`` of the row."""
    room_in_arena(e, c, last - first)
    n = new_node(e, c)
    node = e.nodes[n]
    node.priority = priority
    node.namespace = namespace
    node.run = run
    node.at = at
    node.pages = last - first
    node.depth = first
    node.slots = c.arena_at
    node.key = child_key(e, cfg, parent, namespace, run, at)
    arena = e.arena[c.arena_half]
    for i in range(first, last):
        arena[c.arena_at + i - first] = row[i]
    c.arena_at += last - first
    enter(e.nodes, e.table, n)
    append_child(e.nodes, parent, n)
    update_leaf(e, cfg, c, parent)
    x = n
    while x >= 0 and e.nodes[x].history < last:
        e.nodes[x].history = last
        x = np.int64(e.nodes[x].parent) if x != ROOT else -1
    c.evictable += last - first
    c.cached += last - first
    c.stored += last - first
    if cfg.log:
        log_stored(e, cfg, c, r, row, first, last)
    return n


@splice
def room_in_arena(e, c, n):
    """If the half in use is full, move every node's page ids to the other half, one behind the other."""
    if c.arena_at + n <= e.arena.shape[1]:
        return
    old, new = e.arena[c.arena_half], e.arena[1 - c.arena_half]
    at = 0
    for k in range(1, c.nodes):
        node = e.nodes[k]
        for i in range(node.pages):
            new[at + i] = old[node.slots + i]
        node.slots = at
        at += node.pages
    c.arena_half = 1 - c.arena_half
    c.arena_at = at


@kernel
def lock(e, cfg, c, n):
    """Nothing on the way from the root to ``n`` may be evicted."""
    x = n
    while x != ROOT:
        node = e.nodes[x]
        if node.lock == 0:
            c.evictable -= node.pages
            c.protected += node.pages
        node.lock += 1
        x = np.int64(node.parent)
    update_leaf(e, cfg, c, n)


@kernel
def unlock(e, cfg, c, n):
    x = n
    while x != ROOT:
        node = e.nodes[x]
        node.lock -= 1
        if node.lock == 0:
            c.evictable += node.pages
            c.protected -= node.pages
            update_leaf(e, cfg, c, x)
        x = np.int64(node.parent)


@splice
def unlocked_pages(nodes, n):
    """Pages on the way to ``n`` that are evictable now: what a lock would take away."""
    pages = 0
    x = n
    while x != ROOT:
        if nodes[x].lock == 0:
            pages += nodes[x].pages
        x = np.int64(nodes[x].parent)
    return pages


@splice
def copy_path(e, c, n, row):
    """Page ids of the whole path to ``n`` into ``row``."""
    arena = e.arena[c.arena_half]
    x = n
    while x != ROOT:
        node = e.nodes[x]
        for i in range(node.pages):
            row[node.depth + i] = arena[node.slots + i]
        x = np.int64(node.parent)
