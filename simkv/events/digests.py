"""The engine's real block digests, computed where somebody looks: in events, exports and details of a block.

Inside simkv a block has a 64-bit key; the engine's own identity is
``H((digest of the block before, token ids, extra keys))`` (vllm/v1/core/kv_cache_utils.py, ``hash_block_tokens``).
"""

from __future__ import annotations

import hashlib
import pickle
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from simkv.errors import SettingsError
from simkv.events.types import ExtraKey
from simkv.workload.workload import I4, Workload, tokens_of

Hashable: TypeAlias = "int | str | bytes | tuple[Hashable, ...] | None"
Hasher: TypeAlias = Callable[[Hashable], bytes]


@lru_cache(maxsize=1 << 17)
def _cbor_head(major: int, value: int) -> bytes:
    if value < 24:
        return bytes([major << 5 | value])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if value < 1 << 8 * size:
            return bytes([major << 5 | code]) + value.to_bytes(size, "big")
    raise ValueError(f"{value} needs a CBOR bignum; block hashes hold 64-bit numbers only")


def cbor(value: Hashable) -> bytes:
    """Canonical CBOR (RFC 8949, section 4.2.1) of the types a block hash is made of."""
    if isinstance(value, tuple):
        return _cbor_head(4, len(value)) + b"".join(map(cbor, value))
    if isinstance(value, int):
        return _cbor_head(0, value) if value >= 0 else _cbor_head(1, -1 - value)
    if isinstance(value, bytes):
        return _cbor_head(2, len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _cbor_head(3, len(text)) + text
    return b"\xf6"


def _sha256(value: Hashable) -> bytes:
    return hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


def _sha256_cbor(value: Hashable) -> bytes:
    return hashlib.sha256(cbor(value)).digest()


HASHERS: dict[str, Hasher] = {"sha256": _sha256, "sha256_cbor": _sha256_cbor}
"""Values of ``prefix_caching_hash_algo``."""


def hasher(algo: str) -> Hasher:
    """The function behind ``prefix_caching_hash_algo``. Raises SettingsError for one that is not there."""
    if algo not in HASHERS:
        raise SettingsError("prefix_caching_hash_algo", algo, ", ".join(HASHERS))
    return HASHERS[algo]


def none_hash(algo: str, hash_seed: str | None = None) -> bytes:
    """Parent of a prompt's first block.

    Fixed since vLLM 0.29 unless PYTHONHASHSEED (``hash_seed``) is set. Older releases drew it at random in each process
    without one, so their digests cannot be foretold; simkv uses the fixed value for them as well.
    """
    return hasher(algo)("vllm-none-hash" if hash_seed is None else hash_seed)


class Digests:
    """Block digests of a workload's requests; the most recently used requests are kept.

    Args:
        workload: whose tokens are hashed.
        hash_block_size: tokens per hashed block (gcd of the groups' block sizes).
        algo: ``prefix_caching_hash_algo``.
        tagged: extra keys carry their kind, as since vLLM 0.31 (``Profile.tagged_extra_keys``).
        lora_path: the adapter's path is hashed along with its name (``Profile.lora_path_in_key``).
        root: parent of first blocks where it is known to be another than :func:`none_hash`.
        keep: how many requests' digests to keep.
    """

    def __init__(
        self,
        workload: Workload,
        hash_block_size: int,
        algo: str = "sha256",
        *,
        tagged: bool = True,
        lora_path: bool = True,
        root: bytes | None = None,
        keep: int = 512,
    ) -> None:
        self.workload, self.block_size = workload, hash_block_size
        self._hash, self._none = hasher(algo), none_hash(algo) if root is None else root
        self._tagged, self._lora_path, self._keep = tagged, lora_path, keep
        self._known: OrderedDict[int, tuple[tuple[bytes, ...], I4]] = OrderedDict()

    def of(self, i: int) -> tuple[bytes, ...]:
        """Digests of request ``i``'s full blocks, prompt and generated tokens, one per ``hash_block_size`` tokens."""
        return self._request(i)[0]

    def tokens(self, i: int) -> I4:
        """Prompt and generated tokens of request ``i``."""
        return self._request(i)[1]

    def _request(self, i: int) -> tuple[tuple[bytes, ...], I4]:
        known = self._known.get(i)
        if known is None:
            known = self._known[i] = (self.compute(i), tokens_of(self.workload, i))
            if len(self._known) > self._keep:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(i)
        return known

    def compute(self, i: int, upto: int | None = None) -> tuple[bytes, ...]:
        """The first ``upto`` digests of request ``i`` (all without it), nothing kept."""
        tokens: list[int] = tokens_of(self.workload, i).tolist()
        size, parent, out = self.block_size, self._none, []
        count = len(tokens) // size
        plain = not _has_extra_keys(self.workload, i)
        for b in range(count if upto is None else min(upto, count)):
            extra = None if plain else self._hashed_keys(i, b)
            parent = self._hash((parent, tuple(tokens[b * size : (b + 1) * size]), extra))
            out.append(parent)
        return tuple(out)

    def published_keys(self, i: int, start: int, end: int) -> tuple[ExtraKey, ...] | None:
        """Extra keys of the block of tokens start … end-1 as events publish them: no kinds, an adapter by name alone."""
        if not _has_extra_keys(self.workload, i):
            return None
        keys = _extra_keys(self.workload, i, start, end)
        return tuple((values[0], values[1]) if kind == "mm" else values[0] for kind, values in keys) or None

    def _hashed_keys(self, i: int, b: int) -> tuple[Hashable, ...] | None:
        out: list[Hashable] = []
        for kind, values in _extra_keys(self.workload, i, b * self.block_size, (b + 1) * self.block_size):
            if (kind == "lora" and not self._lora_path) or (kind == "mm" and not self._tagged):
                values = values[:1]
            own = tuple(_own(v) if isinstance(v, str) else v for v in values)
            out += [(kind, *own)] if self._tagged else own
        return tuple(out) or None


def request_digests(
    workload: Workload,
    i: int,
    hash_block_size: int,
    algo: str = "sha256",
    upto: int | None = None,
    *,
    tagged: bool = True,
    lora_path: bool = True,
) -> list[bytes]:
    """Digests of request ``i``'s first ``upto`` full blocks (all without it). For many calls keep a ``Digests``."""
    return list(Digests(workload, hash_block_size, algo, tagged=tagged, lora_path=lora_path).compute(i, upto))


def lora_name(workload: Workload, i: int) -> str | None:
    """The adapter request ``i`` runs on, ``None`` for the base model."""
    return None if workload.lora is None or workload.lora[i] < 0 else workload.loras[workload.lora[i]].name


def _has_extra_keys(workload: Workload, i: int) -> bool:
    salted = workload.salt is not None and bool(workload.salts[workload.salt[i]])
    images = workload.first_image is not None and workload.first_image[i + 1] > workload.first_image[i]
    return salted or bool(images) or lora_name(workload, i) is not None


def _extra_keys(workload: Workload, i: int, start: int, end: int) -> list[tuple[str, tuple[Any, ...]]]:
    """What besides tokens start … end-1 is hashed, in the engine's order, as ``(kind, values)``.

    The adapter stands in every block, an image in the blocks it overlaps (with its offset from the block's start, so
    it may be negative), the salt only in the first block: the chain carries it on.
    """
    out: list[tuple[str, tuple[Any, ...]]] = []
    if workload.lora is not None and workload.lora[i] >= 0:
        adapter = workload.loras[workload.lora[i]]
        out.append(("lora", (adapter.name, adapter.path)))
    if workload.first_image is not None:
        for image in workload.images[workload.first_image[i] : workload.first_image[i + 1]]:
            offset = int(image["offset"])
            if offset < end and offset + int(image["length"]) > start:
                out.append(("mm", (workload.image_identifiers[image["identifier"]], offset - start)))
    if start == 0 and workload.salt is not None and workload.salts[workload.salt[i]]:
        out.append(("cache_salt", (workload.salts[workload.salt[i]],)))
    return out


def _own(text: str) -> str:
    """An equal string that is an object of its own.

    Pickle writes the second mention of one object as a reference, so a shared string would change the digest; the
    engine gets each of these strings from a message of its own.
    """
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")
