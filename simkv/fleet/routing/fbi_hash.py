"""The hash of vllm-router's consistent_hash and sticky_least_loaded: 64 bits that have only 2**23 - 1 different values.

vllm-router 0.1.17, src/policies/consistent_hash.rs (fbi_hash): Facebook's furc hash of a text modulo 2**23 - 1, then MurmurHash64A
of that number. Furc walks down a tree of bits, which are MurmurHash64A of the text, of that hash, of its hash, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simkv.fleet.routing.compiled import entry, kernel

U = np.uint64
MUL, SEED, S47 = U(0xC6A4A7935BD1E995), U(4193360111), U(47)
SHIFT, TRIES, DEPTH = 23, 32, 23
MODULUS = (1 << DEPTH) - 1


@kernel
def mixed(h, k):
    """One round of MurmurHash64A."""
    k *= MUL
    k ^= k >> S47
    return (h ^ (k * MUL)) * MUL


@kernel
def final(h):
    """Its last step."""
    h ^= h >> S47
    h *= MUL
    return h ^ (h >> S47)


@kernel
def murmur(data, start, end):
    """MurmurHash64A of the bytes ``start … end-1``."""
    h = SEED ^ (U(end - start) * MUL)
    at = start
    while at + 8 <= end:
        word = U(0)
        for i in range(8):
            word |= U(data[at + i]) << U(8 * i)
        h = mixed(h, word)
        at += 8
    if at < end:
        word = U(0)
        for i in range(end - at):
            word |= U(data[at + i]) << U(8 * i)
        h = (h ^ word) * MUL
    return final(h)


@kernel
def later(word, steps):
    """The word so many places further in the chain of hashes of hashes."""
    for _ in range(steps):
        word = final(mixed(SEED ^ (U(8) * MUL), word))
    return word


@kernel
def bit(word, place):
    """A bit of the word that holds this place of the chain."""
    return np.int64((word >> U(place & 63)) & U(1))


@kernel
def furc(first):
    """A number below ``MODULUS`` from a text's hash."""
    depth, place = DEPTH, DEPTH
    for _ in range(TRIES):
        while bit(later(first, place >> 6), place) == 0:
            if depth == 0:
                return 0
            depth -= 1
            place = depth
        word, number, at = later(first, place >> 6), 1, place
        place += SHIFT
        for _ in range(depth - 1):
            word = later(word, (place >> 6) - (at >> 6))
            number, at = (number << 1) | bit(word, place), place
            place += SHIFT
        if number < MODULUS:
            return number
    return 0


@entry
def _hashes(data, ends, out):
    start = 0
    for i in range(ends.size):
        number = U(furc(murmur(data, start, ends[i])))
        out[i] = final((SEED ^ (U(4) * MUL) ^ number) * MUL)
        start = ends[i]


def fbi_hashes(texts: Sequence[str]) -> list[int]:
    """The hash of each text's UTF-8."""
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    out = np.zeros(len(parts), np.uint64)
    _hashes(np.frombuffer(b"".join(parts) or b"\0", np.uint8), ends, out)
    return out.tolist()
