"""AIBrix's PrefixHashTable: one list of blocks for all pods in order of last use, each block with the pods that were given it."""

from __future__ import annotations

import numpy as np

from simkv.engine.vllm.keys import U
from simkv.fleet.routing.chunk_lru import Lru, divide, evict, use
from simkv.fleet.routing.chunk_trie import COVERED, MORE, NODES, NONE, PATH, Trie, chunks_of, cut, extend, walk
from simkv.fleet.routing.compiled import entry, kernel
from simkv.fleet.routing.sequence import Sequences
from simkv.fleet.routing.worker_sets import clear_set, copy_set, holds, include, intersect
from simkv.jit import record

LIST = 0
"""There is one list."""
BRANCHES = ("prefix_match", "prefix_match_skipped", "least_request_fallback")
MATCH, SKIPPED, FALLBACK = 0, 1, 2
GAP, FACTOR = 0, 1
RULES = record(("gate", "i8"), ("abs_count", "i8"), ("min_gap", "i8"), ("factor", "f8"), ("deviations", "f8"))


@kernel
def match(trie, s, lru, pods, req, block, limit, root, ready, found):
    """Blocks that each pod of ``ready`` has from the first on without a gap, into ``found``; ``ready`` is used up."""
    found[:] = 0
    walk(trie, s, req, block, limit, root)
    done, length = np.int64(0), trie.size[PATH]
    for i in range(length):
        node = np.int64(trie.path[i])
        blocks = chunks_of(trie, node, block)
        if lru.cells[node, LIST].kept < blocks:
            break  # its first block is gone, and nothing after it is looked up
        upto = blocks if i < length - 1 else trie.size[COVERED] // block
        if not intersect(ready, pods, node):
            break
        done += upto
        for pod in range(found.size):
            if holds(ready, pod):
                found[pod] = done


@kernel
def imbalanced(running, order, least, most, rules):
    """Whether only the least busy pods are candidates."""
    if rules.gate == GAP:
        return most - least > rules.abs_count
    if order.size < 2 or most - least < rules.min_gap:
        return False
    total = 0
    for pod in order:
        total += running[pod]
    return order.size == 2 or most > rules.factor * ((total - most) / (order.size - 1) + 1)


@kernel
def not_too_busy(running, order, rules):
    """The most running requests that a matching pod may have: mean + factor × sample standard deviation."""
    total, squares = 0.0, 0.0
    for pod in order:
        total += running[pod]
    mean = total / order.size
    if order.size < 2:
        return mean
    for pod in order:
        squares += (running[pod] - mean) * (running[pod] - mean)
    return mean + rules.deviations * np.sqrt(squares / (order.size - 1))


@entry
def choose(
    nodes, links, path, size, prompts, pieces, written, cells, lists,
    pods, req, block, limit, root, order, running, rules, ready, found, scores, chosen,
):  # fmt: skip
    """The pods among which the rule draws, into ``chosen``; returns their number, the branch, and the blocks that matched."""
    trie, s, lru = Trie(nodes, links, path, size), Sequences(prompts, pieces, written), Lru(cells, lists)
    least, most = running[order[0]], running[order[0]]
    for pod in order:
        least, most = min(least, running[pod]), max(most, running[pod])
    for w in range(ready.size):
        ready[w] = 0
    only_least = imbalanced(running, order, least, most, rules[0])
    for pod in order:
        if not only_least or running[pod] == least:
            ready[pod >> 6] |= U(1) << U(pod & 63)
    match(trie, s, lru, pods, req, block, limit, root, ready, found)
    total, busiest = limit // block, not_too_busy(running, order, rules[0])
    any_match, best, fewest, n = False, np.int64(-1), np.int64(0), 0
    for pod in order:
        if found[pod] > 0:
            any_match = True
            percent = found[pod] * 100 // total
            scores[pod] = percent
            if running[pod] > busiest or percent < best or (percent == best and running[pod] > fewest):
                continue
            if percent > best or running[pod] < fewest:
                best, fewest, n = percent, running[pod], 0
            chosen[n] = pod
            n += 1
    if n:
        matched = np.int64(0)
        for i in range(n):
            matched = max(matched, found[chosen[i]])
        return n, MATCH, matched
    for pod in order:
        scores[pod] = running[pod]
        if running[pod] == least:
            chosen[n] = pod
            n += 1
    return n, SKIPPED if any_match else FALLBACK, np.int64(0)


@entry
def add(nodes, links, path, size, prompts, pieces, written, cells, lists, pods, times, req, block, limit, root, pod, now):
    """A pod gets a prompt. False, and nothing done, if there is no room in the trie."""
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
            copy_set(pods, last, upper)
            times[upper] = times[last]
            trie.path[length - 1] = upper
    extend(trie, s, req, block, at, limit, root)
    for i in range(trie.size[PATH]):
        node = np.int64(trie.path[i])
        if use(lru, LIST, node, chunks_of(trie, node, block)) > 0:
            # All its blocks are new then: one that lost some is the oldest there is, and its first block drives out the rest.
            clear_set(pods, node)
        include(pods, node, pod)
        times[node] = now
    return True


@entry
def expire(cells, lists, times, before):
    """Drop the blocks that were last used before a time."""
    lru = Lru(cells, lists)
    while lru.lists[LIST].oldest != NONE and times[lru.lists[LIST].oldest] < before:
        node = np.int64(lru.lists[LIST].oldest)
        evict(lru, LIST, np.int64(lru.cells[node, LIST].kept))
