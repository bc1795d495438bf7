"""64-bit chain keys of a request's hash blocks (prompt and output), from content runs and explicit token ids.

Inside the engine a key stands for vLLM's block hash: parent + the block's content + extra keys
(vllm/v1/core/kv_cache_utils.py). LoRA and salt are mixed into the root of the chain, which tells exactly the same
chains apart as vLLM's per-block extra keys do. Real SHA-256 digests are computed at the edge only.
"""

from __future__ import annotations

import hashlib

import numpy as np

from simkv.engine.vllm.compiled import inline, kernel

U = np.uint64
GOLDEN, M1, M2 = U(0x9E3779B97F4A7C15), U(0xBF58476D1CE4E5B9), U(0x94D049BB133111EB)
S27, S30, S31, S32 = U(27), U(30), U(31), U(32)
IMAGE_MARK = U(0xD6E8FEB86659FD93)


def root_key(salt: str, lora_name: str = "", lora_path: str = "") -> int:
    """Start of a request's key chain: equal for equal salt and adapter (name and path), on every machine."""
    if not salt and not lora_name:
        return 0x5851F42D4C957F2D
    text = "\0".join((salt, lora_name, lora_path))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


@inline
def mix(h, x):
    z = (h ^ x) + GOLDEN
    z = (z ^ (z >> S30)) * M1
    z = (z ^ (z >> S27)) * M2
    return z ^ (z >> S31)


@inline
def mix_token(h, token):
    h = (h ^ U(token)) * M1
    return h ^ (h >> S32)


@kernel
def image_key(req, images, start, end, h):
    """Mix in the images that overlap tokens start … end-1: identifier and offset relative to the block."""
    for k in range(req.first_image, req.first_image + req.num_images):
        image = images[k]
        if image.offset < end and image.offset + image.length > start:
            h = mix(mix(h ^ IMAGE_MARK, U(image.identifier)), U(np.int64(image.offset) - start))
    return h


@kernel
def next_keys(req, runs, tokens, images, block_size, first, upto, h, r, at, out):
    """Keys of full blocks ``first … upto-1`` into ``out``, from the key ``h`` before them and the place they begin (run, offset).

    A block's content is the list of pieces it covers. Returns key, run and offset to go on from.
    """
    for i in range(first, upto):
        need = block_size
        while need > 0:
            run = runs[r]
            n = min(run.n - at, need)
            if run.seed < 0:
                begin = -1 - run.seed + run.start + at
                for p in range(begin, begin + n):
                    h = mix_token(h, tokens[p])
            else:
                h = mix(mix(h, U(run.seed)), (U(run.start + at) << S32) | U(n))
            need -= n
            at += n
            if at == run.n:
                r += 1
                at = 0
        if req.num_images > 0:
            h = image_key(req, images, i * block_size, (i + 1) * block_size, h)
        h = mix(h, U(block_size))
        out[i] = h
    return h, r, at


@kernel
def block_keys(req, runs, tokens, images, block_size, upto, out):
    """Keys of the first ``upto`` full blocks into ``out``."""
    next_keys(req, runs, tokens, images, block_size, 0, upto, req.root, np.int64(req.first_run), np.int64(0), out)
