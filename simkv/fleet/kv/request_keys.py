"""Chain keys of requests' prompts: what a KV event names a block by, and what engines find it by.

Keys are computed as far as somebody asks: a look into a cache rarely needs all of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from simkv.engine.vllm.keys import next_keys, root_key
from simkv.fleet.kv.compiled import entry, kernel
from simkv.jit import record
from simkv.workload.workload import Workload

KEYED = record(("root", "u8"), ("first_run", "i8"), ("first_image", "i8"), ("num_images", "i4"), ("num_prompt", "i4"), align=True)
"""What ``next_keys`` reads of a request."""
CURSOR = record(("key", "u8"), ("req", "i8"), ("done", "i8"), ("run", "i8"), ("at", "i8"), ("block_size", "i8"))
"""How far the keys of request ``req`` are computed, and where its next block begins."""


class Keys(NamedTuple):
    """Keys of one request at a time. n requests, B blocks of the longest prompt. Entries take ``*keys`` (see compiled.py)."""

    reqs: Any  # KEYED[n]
    runs: Any  # RUN[m]
    tokens: Any  # i4 explicit token ids
    images: Any  # IMAGE
    cursor: Any  # CURSOR[1]
    keys: Any  # u8[B]


@kernel
def blocks_of(k, req):  # type: ignore[no-untyped-def]
    """Full blocks of a request's prompt."""
    return k.reqs[req].num_prompt // k.cursor[0].block_size


@kernel
def need_keys(k, req, upto):  # type: ignore[no-untyped-def]
    """See to it that the first ``upto`` keys of a request stand in ``k.keys``."""
    c = k.cursor[0]
    if c.req != req:
        c.req, c.done, c.at = req, 0, 0
        c.key, c.run = k.reqs[req].root, k.reqs[req].first_run
    if c.done < upto:
        c.key, c.run, c.at = next_keys(k.reqs[req], k.runs, k.tokens, k.images, c.block_size, c.done, upto, c.key, c.run, c.at, k.keys)
        c.done = upto


@entry
def all_keys(reqs, runs, tokens, images, cursor, keys, req):  # type: ignore[no-untyped-def]
    """All keys of a request's prompt; returns how many there are."""
    k = Keys(reqs, runs, tokens, images, cursor, keys)
    n = blocks_of(k, req)
    need_keys(k, req, n)
    return n


class RequestKeys:
    """Keys of one request at a time, as one kind of replica computes them.

    Args:
        workload: the requests.
        block_size: tokens per key (an engine's ``hash_block_size``).
        lora_path: ``Resolved.lora_path_in_key`` of the engines.
    """

    def __init__(self, workload: Workload, block_size: int, lora_path: bool = True) -> None:
        cursor = np.zeros(1, CURSOR)
        cursor[0].req, cursor[0].block_size = -1, block_size
        self.block_size = block_size
        self.state = Keys(
            reqs=_keyed(workload, lora_path),
            runs=np.asarray(workload.runs.view(np.recarray)),
            tokens=workload.tokens,
            images=np.asarray(workload.images.view(np.recarray)),
            cursor=cursor,
            keys=np.zeros(int(workload.num_prompt.max(initial=0)) // block_size + 1, np.uint64),
        )

    def of(self, i: int) -> npt.NDArray[np.uint64]:
        """Keys of the full blocks of request ``i``'s prompt, shape ``[num_prompt // block_size]``; overwritten by the next request."""
        keys: npt.NDArray[np.uint64] = self.state.keys[: all_keys(*self.state, i)]
        return keys


_shared: WeakKeyDictionary[Workload, dict[tuple[int, bool], RequestKeys]] = WeakKeyDictionary()


def request_keys(workload: Workload, block_size: int, lora_path: bool = True) -> RequestKeys:
    """The ``RequestKeys`` everybody shares, so that what routes a request and what watches it compute its keys once."""
    kinds = _shared.setdefault(workload, {})
    if (block_size, lora_path) not in kinds:
        kinds[block_size, lora_path] = RequestKeys(workload, block_size, lora_path)
    return kinds[block_size, lora_path]


def _keyed(w: Workload, lora_path: bool) -> Any:
    reqs = np.zeros(len(w), KEYED)
    reqs["first_run"], reqs["num_prompt"] = w.first_run[:-1], w.num_prompt
    if w.first_image is not None:
        reqs["first_image"], reqs["num_images"] = w.first_image[:-1], np.diff(w.first_image)

    @cache
    def root(salt: int, lora: int) -> int:
        adapter = w.loras[lora] if lora >= 0 else None
        names = (adapter.name, adapter.path if lora_path else "") if adapter else ("", "")
        return root_key(w.salts[salt] if salt >= 0 else "", *names)

    if len(w):
        salts = [-1] * len(w) if w.salt is None else w.salt.tolist()
        loras = [-1] * len(w) if w.lora is None else w.lora.tolist()
        reqs["root"] = [root(*pair) for pair in zip(salts, loras, strict=True)]
    return reqs
