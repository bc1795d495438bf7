"""Which workers had each chunk: a set of workers at every node of a trie, for routers that never forget (production-stack's HashTrie)."""

from __future__ import annotations

import numpy as np

from simkv.engine.vllm.keys import U
from simkv.fleet.routing.chunk_trie import COVERED, MORE, NODES, PATH, Trie, chunks_of, cut, extend, walk
from simkv.fleet.routing.compiled import entry
from simkv.fleet.routing.sequence import Sequences
from simkv.fleet.routing.worker_sets import common_to, copy_set, include, intersect

NO_ROOT = U(0)


@entry
def match(nodes, links, path, size, prompts, pieces, written, owners, req, chunk, selected):
    """Leave in ``selected`` (bits of available workers) those that had the longest prefix any of them had; returns its chunks."""
    trie, s = Trie(nodes, links, path, size), Sequences(prompts, pieces, written)
    walk(trie, s, req, chunk, np.int64(s.prompts[req].units), NO_ROOT)
    chunks, length = 0, trie.size[PATH]
    for i in range(length):
        node = trie.path[i]
        if not common_to(selected, owners, node):
            break
        intersect(selected, owners, node)
        chunks += chunks_of(trie, node, chunk) if i < length - 1 else (trie.size[COVERED] + chunk - 1) // chunk
    return chunks


@entry
def insert(nodes, links, path, size, prompts, pieces, written, owners, req, chunk, worker):
    """The worker has all chunks of the prompt from now on. False, and nothing done, if there is no room."""
    trie, s = Trie(nodes, links, path, size), Sequences(prompts, pieces, written)
    units = np.int64(s.prompts[req].units)
    at = walk(trie, s, req, chunk, units, NO_ROOT)
    if trie.size[NODES] + MORE > trie.nodes.size:
        return False
    length = trie.size[PATH]
    if length:
        last = np.int64(trie.path[length - 1])
        if trie.size[COVERED] < trie.nodes[last].end - trie.nodes[last].begin:
            upper = cut(trie, s, last, trie.size[COVERED], chunk)
            copy_set(owners, last, upper)
            trie.path[length - 1] = upper
    extend(trie, s, req, chunk, at, units, NO_ROOT)
    for i in range(trie.size[PATH]):
        include(owners, trie.path[i], worker)
    return True
