"""schedule_policy=dfs-weight: requests in order of a walk over the tree, heaviest subtree first, children before their parent.

A subtree weighs as many requests as end in it (mem_cache/base_prefix_cache.py, _dfs_weight_order, 0.5.23). Only nodes on the
way to a waiting request's last node are visited.
"""

from __future__ import annotations

import numpy as np

from simkv.engine.sglang.compiled import kernel, splice
from simkv.engine.sglang.layout import NONE, ROOT
from simkv.engine.sglang.queue import waiting_at


@splice
def weigh(e, c):
    """Weights of all ancestors; each node's own requests as a list, in order of the queue."""
    for i in range(c.wait_len - 1, -1, -1):
        r = waiting_at(e, c, i)
        x = np.int64(e.reqs[r].last_node)
        first = True
        while True:
            node = e.nodes[x]
            if node.pass_of != c.passes:
                node.pass_of = c.passes
                node.weight = 0
                node.queue = NONE
            node.weight += 1
            if first:
                e.reqs[r].link = node.queue
                node.queue = r
                first = False
            if x == ROOT:
                break
            x = np.int64(node.parent)


@splice
def push_children(e, c, n, depth):
    """The visited children of a node onto the stack, lightest first, the later of equals first. Returns the new depth."""
    begin = depth
    x = np.int64(e.nodes[n].last)
    while x != 0:
        node = e.nodes[x]
        if node.pass_of == c.passes:
            k = depth
            while k > begin and e.nodes[e.stack[k - 1]].weight > node.weight:
                e.stack[k] = e.stack[k - 1]
                k -= 1
            e.stack[k] = x
            depth += 1
        x = np.int64(node.prev)
    return depth


@kernel
def order_by_weight(e, c):
    """Reorder the waiting queue. A node is pushed again as its complement when its children go first."""
    weigh(e, c)
    out, depth = 0, 0
    if c.wait_len > 0:
        e.stack[0] = ROOT
        depth = 1
    while depth > 0:
        depth -= 1
        x = np.int64(e.stack[depth])
        if x >= 0:
            e.stack[depth] = ~x
            depth = push_children(e, c, x, depth + 1)
            continue
        r = np.int64(e.nodes[~x].queue)
        while r >= 0:
            e.sorted[out] = r
            out += 1
            r = np.int64(e.reqs[r].link)
    for i in range(out):
        e.queue[c.wait_head + i].waiting = e.sorted[i]
