"""How many of its first tokens each request shares with an earlier one: all requests in one tree of prefixes, to the token.

An edge of the tree is a piece of content (seed, start, n) or of explicit tokens. A child is found by its parent and its first
token, so the work grows with the pieces of the prompts and not with their blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from simkv.diagnosis.compiled import entry, inline
from simkv.engine.vllm.keys import U, mix
from simkv.workload.workload import RUN, Workload, run_offsets

EDGE = np.dtype([("seed", "i8"), ("start", "i8"), ("parent", "i4"), ("n", "i4")])
"""``seed`` EXPLICIT: the tokens from index ``start`` on."""
EXPLICIT = np.int64(-1)
IMAGES = 1 << 61
"""Content of an image: this plus its identifier, so that equal placeholders of different images are different content."""

I4 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SharedPrefixes:
    """The tree and what every request found in it.

    Args:
        matched: tokens each request shares with the best earlier one below the same root, shape ``[n]``; 0 for those left out.
        last: the edge at which each request's kept tokens end, 0 for those left out, shape ``[n]``.
        edges: ``EDGE[m]``; edge 0 is nothing, edges ``1 … roots`` are the roots.
        roots: how many.
    """

    matched: I8
    last: I4
    edges: npt.NDArray[np.void]
    roots: int


def shared_prefixes(workload: Workload, order: I8, root: I8) -> SharedPrefixes:
    """Put requests into the tree one after the other.

    What a request leaves behind are its prompt and its output but for the last token, whose KV is never computed.

    Args:
        order: the requests, in the order in which they look up.
        root: what keeps requests apart: only those of one root share; numbers from 0 on, shape ``[n]``.
    """
    n = len(workload)
    runs, first_run = _with_images(workload)
    kept = np.maximum(workload.num_prompt, workload.num_prompt.astype(np.int64) + workload.num_output - 1)
    roots = int(root[order].max()) + 1 if len(order) else 0
    edges = np.zeros(2 * len(runs) + 2 * n + roots + 2, EDGE)
    table = np.zeros(1 << int(2 * len(edges)).bit_length(), np.int32)
    matched, last = np.zeros(n, np.int64), np.zeros(n, np.int32)
    used = _walk(
        np.ascontiguousarray(order, np.int64),
        np.ascontiguousarray(root, np.int64),
        np.ascontiguousarray(kept, np.int64),
        runs.view(np.recarray),
        np.ascontiguousarray(first_run, np.int64),
        workload.tokens,
        edges.view(np.recarray),
        roots,
        table,
        matched,
        last,
    )
    return SharedPrefixes(np.minimum(matched, workload.num_prompt), last, edges[:used], roots)


@entry
def _walk(order, root, kept, runs, first_run, tokens, edges, roots, table, matched, last):  # type: ignore[no-untyped-def]
    """Insert every request and count what of it was there; returns how many edges there are."""
    used = roots + 1
    for i in order:
        at_edge, left = 1 + root[i], kept[i]
        for r in range(first_run[i], first_run[i + 1]):
            at = 0
            while at < runs[r].n and left > 0:
                most = min(runs[r].n - at, left)
                seed, start = runs[r].seed, np.int64(runs[r].start) + at
                if seed < 0:
                    start += -1 - seed
                    seed = EXPLICIT
                slot = _slot(at_edge, seed, start, tokens, edges, table)
                child = table[slot]
                if child == 0:
                    _set(edges, used, at_edge, seed, start, most)
                    table[slot] = used
                    at_edge, common = used, most
                    used += 1
                else:
                    common = _common(seed, start, most, tokens, edges[child])
                    matched[i] += common
                    if common < edges[child].n:
                        _set(edges, used, at_edge, edges[child].seed, edges[child].start, common)
                        table[slot] = used
                        _set(edges, child, used, edges[child].seed, edges[child].start + common, edges[child].n - common)
                        table[_slot(used, edges[child].seed, edges[child].start, tokens, edges, table)] = child
                        child = used
                        used += 1
                    at_edge = child
                at += common
                left -= common
        last[i] = at_edge
    return used


@inline
def _set(edges, e, parent, seed, start, n):  # type: ignore[no-untyped-def]
    edges[e].parent, edges[e].seed, edges[e].start, edges[e].n = parent, seed, start, n


@inline
def _slot(parent, seed, start, tokens, edges, table):  # type: ignore[no-untyped-def]
    """Where the child of ``parent`` that begins with this token stands, or would stand."""
    first = np.int64(tokens[start]) if seed < 0 else start
    mask = len(table) - 1
    slot = np.int64(mix(mix(U(parent), U(seed)), U(first)) & U(mask))
    while True:
        e = table[slot]
        if e == 0:
            return slot
        edge = edges[e]
        if edge.parent == parent and edge.seed == seed and (np.int64(tokens[edge.start]) if seed < 0 else edge.start) == first:
            return slot
        slot = (slot + 1) & mask


@inline
def _common(seed, start, most, tokens, edge):  # type: ignore[no-untyped-def]
    """How many tokens of an edge that begins alike are the same."""
    most = min(most, edge.n)
    if seed >= 0:
        return most
    same = 1
    while same < most and tokens[start + same] == tokens[edge.start + same]:
        same += 1
    return same


def _with_images(w: Workload) -> tuple[npt.NDArray[np.void], I8]:
    """The runs with the content of images named after the images, and ``first_run``."""
    if w.first_image is None or not len(w.images):
        return w.runs, w.first_run
    pieces: list[tuple[int, int, int]] = []
    owner: list[int] = []
    for i in range(len(w)):
        before = len(pieces)
        images = w.images[w.first_image[i] : w.first_image[i + 1]]
        position = 0
        for seed, start, n in w.runs[w.first_run[i] : w.first_run[i + 1]].tolist():
            cuts = {0, n}
            for offset, length in zip(images["offset"].tolist(), images["length"].tolist(), strict=True):
                cuts |= {c - position for c in (offset, offset + length) if position < c < position + n}
            steps = sorted(cuts)
            for a, b in pairwise(steps):
                inside = (images["offset"] <= position + a) & (position + a < images["offset"] + images["length"])
                if inside.any():
                    image = images[int(np.argmax(inside))]
                    pieces.append((IMAGES + int(image["identifier"]) % IMAGES, position + a - int(image["offset"]), b - a))
                else:
                    pieces.append((seed, start + a, b - a))
            position += n
        owner += [i] * (len(pieces) - before)
    return np.array(pieces, RUN), run_offsets(np.array(owner, np.int64), len(w))
