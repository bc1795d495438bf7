"""A radix tree over prompts that several workers share: who holds which prefix, and when it was last touched.

The tree of the SGLang family of routers (sglang-router 0.3.2, sgl-model-gateway/src/policies/tree.rs; smg 1.13.0,
crates/kv_index). Every node names the workers that hold it, each with a time stamp; whoever holds a node holds all above it.
An edge is a stretch of one request's prompt, so nothing is copied; a stretch is compared per content run. A request is looked
up (``find``) and then placed (``place``, or ``page_tree.place_pages``), which relies on what was found.

Time is a counter. Arrays are made and enlarged in Python; compiled code says when it has no room.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simkv.engine.sglang.links import U, enter, find_child, find_place, leave
from simkv.engine.vllm.keys import mix
from simkv.fleet.routing.compiled import entry, kernel
from simkv.fleet.routing.sequence import Sequences, common, span_key
from simkv.jit import record

NODE = record(
    ("key", "u8"),  # of the parent and the first units of the edge
    ("parent", "i4"),  # free nodes: the next free one
    ("req", "i4"),  # the edge is the units begin … end-1 of this request's prompt
    ("begin", "i4"),
    ("end", "i4"),
    ("owner", "i4"),  # the worker that made it, even if it holds it no more; NOBODY for the root
)
TREE = record(
    ("clock", "i8"),
    ("total", "i8"),  # units held, summed over workers
    ("used", "i4"),  # nodes ever used
    ("free", "i4"),  # the first free node, 0 for none
    ("req", "i4"),  # last request looked up, NOBODY if the tree has changed since
    ("matched", "i4"),  # its units that the tree has
    ("full", "i4"),  # the last node that matched to its end
    ("partial", "i4"),  # the node in whose edge the match ended, 0 for none
)
ROOT, NOBODY, ABSENT = 0, -1, -1
TOUCH_EVERY = 8
FIRST_SIZE = 1024


class PrefixTree(NamedTuple):
    """Arrays: ``NODE[N]``; stamps ``[N, W]``, ABSENT where the worker does not hold the node; table of children ``[2N]``; ``TREE[1]``;
    units held ``[W]``."""

    nodes: npt.NDArray[np.void]
    stamps: npt.NDArray[np.int64]
    table: npt.NDArray[np.uint64]
    state: npt.NDArray[np.void]
    sizes: npt.NDArray[np.int64]


def new_tree(workers: int, size: int = FIRST_SIZE) -> PrefixTree:
    """An empty tree for ``workers`` slots with room for ``size`` nodes, a power of two."""
    nodes, state = np.zeros(size, NODE), np.zeros(1, TREE)
    nodes["owner"], state["used"], state["req"] = NOBODY, 1, NOBODY
    table = np.zeros(2 * size, np.uint64)
    stamps = np.full((size, workers), ABSENT, np.int64)
    return PrefixTree(nodes, stamps, table, state, np.zeros(workers, np.int64))


def enlarged(t: PrefixTree) -> PrefixTree:
    """The same tree with twice the room."""
    bigger = new_tree(t.stamps.shape[1], 2 * len(t.nodes))
    bigger.nodes[: len(t.nodes)] = t.nodes
    bigger.stamps[: len(t.nodes)] = t.stamps
    bigger.state[:] = t.state
    bigger.sizes[:] = t.sizes
    _refill(bigger.nodes, bigger.table, t.table)
    return bigger


@entry
def _refill(nodes, table, old):
    """Enter the nodes of another table."""
    for word in old:
        if word != 0:
            enter(nodes, table, np.int64(word & U(0xFFFF_FFFF)))


@kernel
def edge_key(s, parent, req, pos, page):
    """Key of the child of ``parent`` whose edge begins with the page at a position."""
    return span_key(s, req, pos, page, mix(U(1), U(parent)))


@kernel
def ended_in(c):
    """The node where the last look-up ended."""
    return np.int64(c.partial if c.partial != 0 else c.full)


@kernel
def walk(t, s, req, page):
    """Look a request up: what of it, in whole pages, the tree has. Remembers where that ends."""
    c = t.state[0]
    upto = np.int64(s.prompts[req].units) // page * page
    n, pos, partial = ROOT, 0, 0
    while pos < upto:
        child = find_child(t.nodes, t.table, edge_key(s, n, req, pos, page))
        if child == 0:
            break
        edge = t.nodes[child]
        same = common(s, np.int64(edge.req), req, pos, min(np.int64(edge.end), upto) - pos) // page * page
        if same == 0:
            break
        pos += same
        if pos < edge.end:
            partial = child
            break
        n = child
    c.req, c.matched, c.full, c.partial = req, pos, n, partial


@kernel
def has_room(t):
    """Whether one more request fits: it makes two nodes at most."""
    return t.state[0].used + 2 <= t.nodes.size


@kernel
def new_node(t, parent, req, begin, end):
    c = t.state[0]
    n = np.int64(c.free)
    if n != 0:
        c.free = t.nodes[n].parent
    else:
        n = np.int64(c.used)
        c.used += 1
    node = t.nodes[n]
    node.parent, node.req, node.begin, node.end = parent, req, begin, end
    return n


@kernel
def split(t, s, child, pos, page):
    """A new node takes a child's edge up to ``pos``, with the same holders and stamps. Returns it."""
    rest = t.nodes[child]
    upper = new_node(t, np.int64(rest.parent), np.int64(rest.req), np.int64(rest.begin), pos)
    node = t.nodes[upper]
    node.owner = rest.owner
    node.key = rest.key
    t.table[find_place(t.nodes, t.table, rest.key)] = (node.key << U(32)) | U(upper)
    for w in range(t.stamps.shape[1]):
        t.stamps[upper, w] = t.stamps[child, w]
    rest.parent, rest.begin = upper, pos
    rest.key = edge_key(s, upper, np.int64(rest.req), pos, page)
    enter(t.nodes, t.table, child)
    return upper


@kernel
def add_leaf(t, s, parent, req, begin, end, worker, stamp, page):
    """A leaf that only ``worker`` holds."""
    n = new_node(t, parent, req, begin, end)
    node = t.nodes[n]
    node.owner = worker
    node.key = edge_key(s, parent, req, begin, page)
    enter(t.nodes, t.table, n)
    t.stamps[n, worker] = stamp
    t.sizes[worker] += end - begin
    t.state[0].total += end - begin
    return n


@kernel
def hold(t, n, worker):
    """The worker holds a node as well, with the oldest of all stamps if it is new there. Returns whether it is."""
    if t.stamps[n, worker] != ABSENT or n == ROOT:
        return False
    t.stamps[n, worker] = 0
    t.sizes[worker] += t.nodes[n].end - t.nodes[n].begin
    t.state[0].total += t.nodes[n].end - t.nodes[n].begin
    return True


@kernel
def let_go(t, n, worker):
    """The worker holds a node no more; a node that nobody holds leaves the tree."""
    node = t.nodes[n]
    t.stamps[n, worker] = ABSENT
    t.sizes[worker] -= node.end - node.begin
    t.state[0].total -= node.end - node.begin
    for w in range(t.stamps.shape[1]):
        if t.stamps[n, w] != ABSENT:
            return
    leave(t.nodes, t.table, n)
    node.parent = t.state[0].free
    node.owner, node.begin, node.end = NOBODY, 0, 0
    t.state[0].free = n


@entry
def find(nodes, stamps, table, state, sizes, prompts, pieces, written, req, page):
    """``(units matched, the node where the match ended, its owner)``; NOBODY for an owner that does not hold the node any more."""
    t, s = PrefixTree(nodes, stamps, table, state, sizes), Sequences(prompts, pieces, written)
    walk(t, s, req, page)
    c = t.state[0]
    n = ended_in(c)
    owner = np.int64(t.nodes[n].owner)
    lost = owner != NOBODY and t.stamps[n, owner] == ABSENT
    return np.int64(c.matched), n, np.int64(NOBODY) if lost else owner


@kernel
def touch(t, n, worker, chosen_as_owner):
    """What a look-up that ended in node ``n`` leaves behind."""
    c, node = t.state[0], t.nodes[n]
    if chosen_as_owner and (node.owner == NOBODY or t.stamps[n, node.owner] == ABSENT):
        node.owner = worker
    if c.clock % TOUCH_EVERY == 0 and n != ROOT and node.owner != NOBODY and t.stamps[n, node.owner] != ABSENT:
        t.stamps[n, node.owner] = c.clock
    c.clock += 1


@entry
def place(nodes, stamps, table, state, sizes, prompts, pieces, written, req, worker, looked_up, chosen_as_owner):
    """Note that a request goes to a worker. Returns False, and has done nothing, if there is no room.

    A look-up costs a tick; one in 8 stamps the owner of the node where the match ended. The end of the path gets a stamp,
    nodes above that the worker did not hold before get 0.

    Args:
        looked_up: whether the rule asked the tree.
        chosen_as_owner: whether it asked whose the prefix is and this worker was the answer: it stands for a lost owner.
    """
    t, s = PrefixTree(nodes, stamps, table, state, sizes), Sequences(prompts, pieces, written)
    if not has_room(t):
        return False
    c = t.state[0]
    if c.req != req:
        walk(t, s, req, 1)
    if looked_up:
        touch(t, ended_in(c), worker, chosen_as_owner)
    above = np.int64(c.full)
    while above != ROOT:
        hold(t, above, worker)
        above = np.int64(t.nodes[above].parent)
    n, pos, upto = np.int64(c.full), np.int64(c.matched), np.int64(s.prompts[req].units)
    if c.partial != 0:
        n = split(t, s, np.int64(c.partial), pos, 1)
        hold(t, n, worker)
    if pos < upto:
        add_leaf(t, s, n, req, pos, upto, worker, c.clock, 1)
    elif n != ROOT:
        t.stamps[n, worker] = c.clock
    c.clock += 1
    c.req = NOBODY
    return True


def holders(t: PrefixTree, node: int) -> list[int]:
    """Workers that hold a node, by slot."""
    return [w for w, stamp in enumerate(t.stamps[node].tolist()) if stamp != ABSENT]
