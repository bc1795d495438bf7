"""The prompts of a workload as compiled code reads them: how far two agree, what stands at a position, keys of chunks.

A position counts the units of a prompt from 0 (tokens; in recordings whatever the real router matched). Two prompts are
always compared at equal positions, since routers look at prefixes only. The work is per content run, never per unit, but
for content written out, which is compared and hashed by value.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from simkv.engine.sglang.content import equal_tokens
from simkv.engine.vllm.keys import S32, U, mix, mix_token, root_key
from simkv.fleet.routing.compiled import entry, kernel
from simkv.jit import record
from simkv.workload.workload import Workload

PIECE = record(
    ("seed", "i8"),  # the content; -1: written out
    ("at", "i8"),  # offset of its first unit in the content, or in the array of units written out
    ("begin", "i4"),  # the piece covers positions begin … end-1 of its request's prompt
    ("end", "i4"),
)
PROMPT = record(("piece", "i8"), ("pieces", "i4"), ("units", "i4"))  # first piece, pieces and length of a prompt
WRITTEN = -1
START = np.uint64(root_key(""))
"""Root of a chain of keys without salt: what simkv/engine/vllm/keys.py begins with."""
WRITTEN_MARK, CONTENT_MARK = U(0x6A09E667F3BCC909), U(0xBB67AE8584CAA73B)

_of_workload: WeakKeyDictionary[Workload, Sequences] = WeakKeyDictionary()


class Sequences(NamedTuple):
    """All prompts of a workload: ``PROMPT[n]``, ``PIECE[m]`` and the units that are written out, ``i4[k]``.

    Kernels take it whole, entries array by array (simkv/fleet/routing/compiled.py).
    """

    prompts: npt.NDArray[np.void]
    pieces: npt.NDArray[np.void]
    written: npt.NDArray[np.int32]


def sequences(workload: Workload) -> Sequences:
    """The prompts of a workload, without the answers. Made once a workload."""
    found = _of_workload.get(workload)
    if found is None:
        found = _of_workload[workload] = _prompts(workload)
    return found


def _prompts(workload: Workload) -> Sequences:
    runs, first, n = workload.runs, workload.first_run, len(workload)
    owner = np.repeat(np.arange(n), np.diff(first))
    before = np.concatenate([[0], np.cumsum(runs["n"], dtype=np.int64)])
    begin = before[:-1] - before[first[owner]]
    end = np.minimum(begin + runs["n"], workload.num_prompt[owner])
    keep = end > begin
    pieces = np.zeros(int(keep.sum()), PIECE)
    written = runs["seed"] < 0
    pieces["seed"] = np.where(written, WRITTEN, runs["seed"])[keep]
    pieces["at"] = np.where(written, -1 - runs["seed"] + runs["start"], runs["start"])[keep]
    pieces["begin"], pieces["end"] = begin[keep], end[keep]
    prompts = np.zeros(n, PROMPT)
    prompts["pieces"] = np.bincount(owner[keep], minlength=n)
    prompts["piece"] = np.concatenate([[0], np.cumsum(prompts["pieces"][:-1], dtype=np.int64)])[:n]
    prompts["units"] = workload.num_prompt
    arrays = Sequences(prompts, pieces, np.ascontiguousarray(workload.tokens))
    for array in arrays:
        array.setflags(write=False)
    return arrays


@kernel
def piece_at(s, req, pos):
    """The piece that covers a position below the prompt's length."""
    low = s.prompts[req].piece
    high = low + s.prompts[req].pieces - 1
    while low < high:
        middle = (low + high) >> 1
        if s.pieces[middle].end <= pos:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def common(s, a, b, pos, limit):
    """How many units of prompts ``a`` and ``b`` agree from ``pos`` on, without a gap, at most ``limit`` and to the end of the shorter."""
    stop = min(pos + limit, min(np.int64(s.prompts[a].units), np.int64(s.prompts[b].units)))
    if stop <= pos or a == b:
        return max(stop - pos, 0)
    i, j, at = piece_at(s, a, pos), piece_at(s, b, pos), pos
    while True:
        x, y = s.pieces[i], s.pieces[j]
        upto = min(min(np.int64(x.end), np.int64(y.end)), stop)
        if x.seed != y.seed:
            return at - pos
        left, right = x.at + (at - x.begin), y.at + (at - y.begin)
        if x.seed == WRITTEN:
            same = equal_tokens(s.written, left, right, upto - at)
            if same < upto - at:
                return at + same - pos
        elif left != right:
            return at - pos
        at = upto
        if at == stop:
            return at - pos
        i += x.end == at
        j += y.end == at


@kernel
def unit_at(s, req, pos):
    """What stands at a position, as 64 bits: equal exactly where two prompts have the same unit."""
    piece = s.pieces[piece_at(s, req, pos)]
    at = piece.at + (pos - piece.begin)
    if piece.seed == WRITTEN:
        return mix(WRITTEN_MARK, U(s.written[at]))
    return mix(mix(CONTENT_MARK, U(piece.seed)), U(at))


@kernel
def span_key(s, req, pos, n, h):
    """Hash of the units ``pos … pos+n-1``, begun with ``h``: equal exactly where the units and ``h`` are."""
    i, at, stop = piece_at(s, req, pos), pos, pos + n
    while at < stop:
        piece = s.pieces[i]
        m = min(np.int64(piece.end), stop) - at
        first = piece.at + (at - piece.begin)
        if piece.seed == WRITTEN:
            for p in range(first, first + m):
                h = mix_token(h, s.written[p])
        else:
            h = mix(mix(h, U(piece.seed)), (U(first) << S32) | U(m))
        at += m
        i += piece.end == at
    return h


@kernel
def chunk_keys(s, req, chunk, root, partial, out):
    """Keys of the prompt's chunks of ``chunk`` units into ``out``, each over everything before it; returns how many.

    As many as fit into ``out``. ``partial``: a shorter last chunk has a key as well. Full chunks have the keys of the engine's
    blocks of that size (simkv/engine/vllm/keys.py) where the prompt has no images.
    """
    units = np.int64(s.prompts[req].units)
    count = min((units + chunk - 1) // chunk if partial else units // chunk, out.size)
    h = root
    for k in range(count):
        n = min(chunk, units - k * chunk)
        h = mix(span_key(s, req, k * chunk, n, h), U(n))
        out[k] = h
    return count


@entry
def _common(prompts, pieces, written, a, b, pos, limit):
    return common(Sequences(prompts, pieces, written), a, b, pos, limit)


@entry
def _unit_at(prompts, pieces, written, req, pos):
    return unit_at(Sequences(prompts, pieces, written), req, pos)


@entry
def _prefix_key(prompts, pieces, written, req, units, root):
    s = Sequences(prompts, pieces, written)
    return span_key(s, req, 0, min(units, np.int64(s.prompts[req].units)), root)


@entry
def _chunk_keys(prompts, pieces, written, req, chunk, root, partial, out):
    return chunk_keys(Sequences(prompts, pieces, written), req, chunk, root, partial, out)


def common_units(s: Sequences, a: int, b: int, pos: int = 0, limit: int = 1 << 31) -> int:
    """``common`` for Python: units of prompts ``a`` and ``b`` that agree from ``pos`` on, at most ``limit``."""
    return int(_common(*s, a, b, pos, limit))


def unit_id(s: Sequences, req: int, pos: int) -> int:
    """``unit_at`` for Python. ``pos`` is below the prompt's length."""
    return int(_unit_at(*s, req, pos))


def prefix_key(s: Sequences, req: int, units: int) -> int:
    """64 bits that say what the first ``units`` units of a prompt are (all of a shorter one)."""
    return int(_prefix_key(*s, req, units, START))


def keys_of(s: Sequences, req: int, chunk: int, root: Any = START, partial: bool = False) -> npt.NDArray[np.uint64]:
    """``chunk_keys`` for Python: the chain keys of one prompt, shape ``[chunks]``."""
    out = np.zeros(-(-int(s.prompts[req]["units"]) // chunk), np.uint64)
    return out[: _chunk_keys(*s, req, chunk, np.uint64(root), partial, out)]
