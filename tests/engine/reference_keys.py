"""What a request's blocks are called: content with everything before it, told apart exactly, without hashing.

Rules of vllm/v1/core/kv_cache_utils.py (hash_block_tokens, generate_block_hash_extra_keys), 0.32.0.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from simkv.workload.workload import Workload

ROOT = 0


class ChainKeys:
    """Equal chains get equal numbers: (number of the block before, tokens, extra keys) is written in a dictionary.

    Args:
        lora_path: the adapter's path tells blocks apart, not only its name (0.31 and later).
    """

    def __init__(self, workload: Workload, hash_block: int, *, lora_path: bool) -> None:
        self.workload, self.hash_block, self.lora_path = workload, hash_block, lora_path
        self._numbers: dict[Hashable, int] = {}

    def of(self, i: int) -> list[int]:
        """Chain key of every full hash block of request ``i``, prompt and all output."""
        tokens, size, parent, out = tokens_of(self.workload, i), self.hash_block, ROOT, []
        for start in range(0, len(tokens) - size + 1, size):
            extra = extra_keys(self.workload, i, start, start + size, lora_path=self.lora_path)
            block = (parent, tuple(tokens[start : start + size]), extra)
            parent = self._numbers.setdefault(block, len(self._numbers) + 1)
            out.append(parent)
        return out


def tokens_of(workload: Workload, i: int) -> list[tuple[int, int]]:
    """Each token as what it is: (content, position in it), or (-1, token id) where real ids are known."""
    out: list[tuple[int, int]] = []
    for run in workload.runs[workload.first_run[i] : workload.first_run[i + 1]]:
        seed, start, n = int(run["seed"]), int(run["start"]), int(run["n"])
        if seed < 0:
            first = -1 - seed + start
            out += [(-1, t) for t in workload.tokens[first : first + n].tolist()]
        else:
            out += [(seed, start + k) for k in range(n)]
    assert len(out) == int(workload.num_prompt[i]) + int(workload.num_output[i])
    return out


def extra_keys(workload: Workload, i: int, start: int, end: int, *, lora_path: bool) -> tuple[Hashable, ...]:
    """What else tells blocks of equal tokens apart: adapter (every block), images (blocks they overlap), salt (block 0)."""
    out: list[Hashable] = []
    if workload.lora is not None and workload.lora[i] >= 0:
        adapter = workload.loras[workload.lora[i]]
        out.append(("lora", adapter.name, adapter.path if lora_path else ""))
    if workload.first_image is not None:
        for image in workload.images[workload.first_image[i] : workload.first_image[i + 1]]:
            offset, length = int(image["offset"]), int(image["length"])
            if offset < end and start < offset + length:
                out.append(("mm", workload.image_identifiers[image["identifier"]], offset - start))
    if start == 0 and workload.salt is not None and workload.salts[workload.salt[i]]:
        out.append(("cache_salt", workload.salts[workload.salt[i]]))
    return tuple(out)


def priority_of(workload: Workload, i: int) -> int:
    """Lower runs first; 0 if the workload has no priorities."""
    return 0 if workload.priority is None else int(workload.priority[i])


def arrival_tie(workload: Workload, i: int) -> float:
    """What the queue compares as arrival time; chained requests add the moment their predecessor ended."""
    return float(workload.tie[i]) if workload.tie is not None else float(workload.arrive[i] + 1e-9 * np.float64(i))
