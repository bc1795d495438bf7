"""The index of llm-d's approx-prefix-cache-producer: a list of blocks per pod in order of last use, and a table from blocks to pods.

Table and lists hold the same, but for one thing: a prompt of more blocks than a pod's list has room for drives out its own
first blocks, and the table gets all of them afterwards. Such blocks (``ghost``) stay in the table until they are used again.
"""

from __future__ import annotations

import numpy as np

from simkv.fleet.routing.chunk_lru import Lru, divide, use
from simkv.fleet.routing.chunk_trie import COVERED, MORE, NODES, NONE, PATH, Trie, chunks_of, cut, extend, walk
from simkv.fleet.routing.compiled import entry, inline, kernel
from simkv.fleet.routing.sequence import Sequences


@kernel
def count_known(trie, s, lru, req, block, limit, root, found):
    """Each pod's known blocks, from the first block on as long as any pod has the block (``res[server]++``)."""
    found[:] = 0
    walk(trie, s, req, block, limit, root)
    length = trie.size[PATH]
    for i in range(length):
        node = np.int64(trie.path[i])
        blocks = chunks_of(trie, node, block)
        upto = blocks if i < length - 1 else (trie.size[COVERED] + block - 1) // block
        held_from, ghosts = blocks, np.int64(0)
        for pod in range(lru.lists.size):
            cell = lru.cells[node, pod]
            held_from = min(held_from, blocks - cell.kept)
            ghosts = max(ghosts, np.int64(cell.ghost))
        if ghosts < held_from:
            upto = min(upto, ghosts)
        for pod in range(lru.lists.size):
            cell = lru.cells[node, pod]
            found[pod] += min(np.int64(cell.ghost), upto) + max(upto - (blocks - cell.kept), 0)
        if upto < blocks:
            break


@inline
def within(score):
    return min(max(score, 0.0), 1.0)


@entry
def score(nodes, links, path, size, prompts, pieces, written, cells, lists, req, block, limit, root, order, metrics, weights, found, sums):
    """Sums of the weighted scores (queue, KV cache, prefix) of the pods in ``order``. Unknown metrics are 0.

    Returns the highest sum and the most known blocks among those that have it.
    """
    trie, s, lru = Trie(nodes, links, path, size), Sequences(prompts, pieces, written), Lru(cells, lists)
    count_known(trie, s, lru, req, block, limit, root, found)
    total = (limit + block - 1) // block
    low, high = np.int64(1) << 62, np.int64(0)
    for pod in order:
        waiting = np.int64(metrics[pod]["waiting"] if metrics[pod]["time"] == metrics[pod]["time"] else 0)
        low, high = min(low, waiting), max(high, waiting)
    best, known_blocks = -1.0, np.int64(0)
    for pod in order:
        m = metrics[pod]
        known = m["time"] == m["time"]
        waiting = np.int64(m["waiting"] if known else 0)
        usage = m["kv_usage"] if known and m["kv_usage"] == m["kv_usage"] else 0.0
        queue = 1.0 if high == low else (high - waiting) / (high - low)
        prefix = found[pod] / total if total > 0 else 0.0
        value = within(queue) * weights[0] + within(1.0 - usage) * weights[1] + within(prefix) * weights[2]
        sums[pod] = value
        if value >= best:
            known_blocks = max(known_blocks, found[pod]) if value == best else found[pod]
            best = value
    return best, known_blocks


@entry
def add(nodes, links, path, size, prompts, pieces, written, cells, lists, req, block, limit, root, pod):
    """A pod gets a prompt: all its blocks are its most recent ones. False, and nothing done, if there is no room in the trie."""
    trie, s, lru = Trie(nodes, links, path, size), Sequences(prompts, pieces, written), Lru(cells, lists)
    at = walk(trie, s, req, block, limit, root)
    if trie.size[NODES] + MORE > trie.nodes.size:
        return False
    length = trie.size[PATH]
    if length:
        last = np.int64(trie.path[length - 1])
        rest = trie.nodes[last].end - trie.nodes[last].begin - trie.size[COVERED]
        if rest > 0:
            upper = cut(trie, s, last, trie.size[COVERED], block)
            divide(lru, last, upper, trie.size[COVERED] // block, rest // block)
            trie.path[length - 1] = upper
    extend(trie, s, req, block, at, limit, root)
    length = trie.size[PATH]
    for i in range(length):
        node = np.int64(trie.path[i])
        use(lru, pod, node, chunks_of(trie, node, block))
    for i in range(length):
        node = np.int64(trie.path[i])
        lru.cells[node, pod].ghost = chunks_of(trie, node, block) - lru.cells[node, pod].kept
    return True


@entry
def remove(lru, pod):
    """A pod is gone: its list is emptied, and with it the table, of all but ghosts."""
    bounds = lru.lists[pod]
    node = bounds.oldest
    while node != NONE:
        cell = lru.cells[node, pod]
        cell.kept = 0
        node = cell.newer
    bounds.oldest = bounds.newest = NONE
    bounds.held = 0
