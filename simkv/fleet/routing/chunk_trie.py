"""Prompts cut into chunks, as a trie: what routers know that index text by fixed chunks (or blocks), with work per run.

Such a router keeps a table of chunks, each known by its content and all before it. Chunks that always come together are one
node here, so a prompt of thousands of chunks is a path of a few nodes, and what the router notes about a chunk is noted
about a node. The trie itself forgets nothing; what a router forgets is part of its notes. A last chunk that is shorter
than the others is a node of its own without children.

A node that has to be cut keeps its number as the lower part, so that its children stay; the upper part is new.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simkv.engine.vllm.keys import S32, U, mix, mix_token
from simkv.fleet.routing.compiled import entry, inline, kernel
from simkv.fleet.routing.sequence import WRITTEN, common, piece_at
from simkv.jit import record

NODE = record(
    ("key", "u8"),  # of the link from the parent: parent, and the node's first chunk
    ("req", "i4"),  # a prompt that has this content
    ("begin", "i4"),  # positions begin … end-1 of it
    ("end", "i4"),
)
LINK = record(("key", "u8"), ("node", "i4"))
NONE = -1
ROOT = 0
NODES, PATH, COVERED = 0, 1, 2
"""Entries of ``Trie.size``: nodes in use; nodes on the last path; positions of the last of them that were found."""
MORE = 3
"""Nodes that a path can need beyond those that are there: half of a cut one, the rest of a prompt, its last shorter chunk."""


class Trie(NamedTuple):
    """``NODE[n]``, a hash table ``LINK[2^k]`` from keys to nodes, the nodes of the last path ``i4[p]`` and ``size``."""

    nodes: npt.NDArray[np.void]
    links: npt.NDArray[np.void]
    path: npt.NDArray[np.int32]
    size: npt.NDArray[np.int64]


def make_trie(nodes: int, longest: int) -> Trie:
    """An empty trie.

    Args:
        nodes: room for so many.
        longest: chunks of the longest prompt.
    """
    trie = Trie(
        np.zeros(nodes, NODE),
        np.zeros(1 << (2 * nodes - 1).bit_length(), LINK),
        np.zeros(longest + 1, np.int32),
        np.array([1, 0, 0], np.int64),
    )
    trie.links["node"] = NONE
    return trie


def enlarged(trie: Trie) -> Trie:
    """The same with twice the room."""
    old = len(trie.nodes)
    bigger = make_trie(2 * old, len(trie.path) - 1)
    bigger.nodes[:old] = trie.nodes
    bigger.path[:] = trie.path
    bigger.size[:] = trie.size
    _link_all(bigger)
    return bigger


@inline
def place(trie, key):
    """Where a key stands in the table, or the free place for it."""
    mask = trie.links.size - 1
    at = np.int64(key >> S32) & mask
    while trie.links[at].node != NONE and trie.links[at].key != key:
        at = (at + 1) & mask
    return at


@entry
def _link_all(trie):
    for node in range(1, trie.size[NODES]):
        link = trie.links[place(trie, trie.nodes[node].key)]
        link.key = trie.nodes[node].key
        link.node = node


@kernel
def link_key(s, req, begin, end, parent, root):
    """Key of the link to the node that begins with this chunk. ``root`` tells namespaces apart (salt, model)."""
    h = mix(root if parent == ROOT else U(0), U(parent))
    i, at = piece_at(s, req, begin), begin
    while at < end:
        piece = s.pieces[i]
        n = min(np.int64(piece.end), end) - at
        first = piece.at + (at - piece.begin)
        if piece.seed == WRITTEN:
            for p in range(first, first + n):
                h = mix_token(h, s.written[p])
        else:
            h = mix(mix(h, U(piece.seed)), (U(first) << S32) | U(n))
        at += n
        i += piece.end == at
    return mix(h, U(end - begin))


@inline
def chunks_of(trie, node, chunk):
    """Chunks of a node."""
    return (np.int64(trie.nodes[node].end - trie.nodes[node].begin) + chunk - 1) // chunk


@kernel
def walk(trie, s, req, chunk, limit, root):
    """Find the path of a prompt's first ``limit`` positions; returns how many of them the trie has.

    The nodes go to ``trie.path``. The last one may be covered in part only, up to ``size[COVERED]`` of its positions.
    """
    at, parent, length = np.int64(0), np.int64(ROOT), 0
    trie.size[COVERED] = 0
    while at < limit:
        stop = min(at + chunk, limit)
        found = trie.links[place(trie, link_key(s, req, at, stop, parent, root))].node
        if found == NONE:
            break
        node = trie.nodes[found]
        size = np.int64(node.end - node.begin)
        same = size
        if size >= chunk:
            same = common(s, req, np.int64(node.req), at, min(size, limit - at)) // chunk * chunk
        trie.path[length] = found
        length += 1
        at += same
        trie.size[COVERED] = same
        parent = found
        if same < size:
            break
    trie.size[PATH] = length
    return at


@kernel
def new_node(trie, req, begin, end, key):
    node = trie.size[NODES]
    trie.size[NODES] = node + 1
    fresh = trie.nodes[node]
    fresh.key, fresh.req, fresh.begin, fresh.end = key, req, begin, end
    link = trie.links[place(trie, key)]
    link.key, link.node = key, node
    return node


@kernel
def cut(trie, s, node, size, chunk):
    """Cut the first ``size`` positions off a node; returns the new node that has them."""
    lower = trie.nodes[node]
    begin = np.int64(lower.begin)
    middle = begin + size
    upper = trie.size[NODES]
    trie.size[NODES] = upper + 1
    fresh = trie.nodes[upper]
    fresh.key, fresh.req, fresh.begin, fresh.end = lower.key, lower.req, begin, middle
    trie.links[place(trie, lower.key)].node = upper
    lower.begin = middle
    lower.key = link_key(s, np.int64(lower.req), middle, min(middle + chunk, np.int64(lower.end)), upper, U(0))
    link = trie.links[place(trie, lower.key)]
    link.key, link.node = lower.key, node
    return upper


@kernel
def extend(trie, s, req, chunk, at, limit, root):
    """Add what ``walk`` did not find: positions ``at … limit-1`` below the last node of the path, which is covered whole."""
    length = trie.size[PATH]
    parent = np.int64(trie.path[length - 1]) if length else ROOT
    full = limit // chunk * chunk
    if at < full:
        parent = new_node(trie, req, at, full, link_key(s, req, at, at + chunk, parent, root))
        trie.path[length] = parent
        length += 1
        at = full
    if at < limit:
        trie.path[length] = new_node(trie, req, at, limit, link_key(s, req, at, limit, parent, root))
        length += 1
    trie.size[PATH] = length
