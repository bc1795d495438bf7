"""Chain keys of a request outside the engine: for folds and explanations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.engine.vllm import layout
from simkv.engine.vllm.compiled import entry
from simkv.engine.vllm.keys import block_keys, root_key
from simkv.workload.workload import Workload


@entry
def fill_keys(req, runs, tokens, images, block_size, upto, out):  # type: ignore[no-untyped-def]
    """Python's way into ``block_keys``."""
    block_keys(req, runs, tokens, images, block_size, upto, out)


def group_key(group: int) -> int:
    """What a chain key is combined with (exclusive or) in the cache of KV group ``group``; 0 for the first."""
    return (group * 0x9E3779B97F4A7C15) & 0xFFFF_FFFF_FFFF_FFFF


def chain_keys(
    workload: Workload, i: int, hash_block_size: int, root: int | None = None, *, lora_path: bool = True, upto: int | None = None
) -> npt.NDArray[np.uint64]:
    """The engine's 64-bit keys of request ``i``'s full hash blocks, prompt and output, for group 0.

    Args:
        root: start of the chain; default: that of the request's salt and adapter.
        lora_path: ``Profile.lora_path_in_key``.
        upto: only the first so many.
    """
    w = workload
    req = layout.zeros(1, layout.REQUEST)[0]
    req.first_run = w.first_run[i]
    if w.first_image is not None:
        req.first_image, req.num_images = w.first_image[i], w.first_image[i + 1] - w.first_image[i]
    if root is None:
        adapter = w.loras[w.lora[i]] if w.lora is not None and w.lora[i] >= 0 else None
        names = (adapter.name, adapter.path if lora_path else "") if adapter else ("", "")
        root = root_key(w.salts[w.salt[i]] if w.salt is not None else "", *names)
    req.root = root
    count = int(w.num_prompt[i] + w.num_output[i]) // hash_block_size
    count = count if upto is None else min(count, upto)
    out = np.zeros(count, np.uint64)
    fill_keys(req, w.runs.view(np.recarray), w.tokens, w.images.view(np.recarray), hash_block_size, count, out)
    return out
