"""Content of prompts: synthetic runs written out as token ids, text as tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.errors import InputError
from simkv.workload.workload import I4, RUN, VOCABULARY

MOST_TOKENS = 500_000_000
"""Token ids written out at once: 2 GB."""


def write_out(runs: npt.NDArray[np.void], tokens: I4, name: str) -> tuple[npt.NDArray[np.void], I4]:
    """Every run as explicit token ids, so that equal ids are equal content however they were named.

    Args:
        runs: ``RUN[m]``; negative seeds point into ``tokens``.
        tokens: the ids written out already.
        name: the file, for the error if it would be too much.

    Returns:
        ``(RUN[m], tokens)``: run ``k`` is ``(-1, offset, n)``; consecutive runs lie one behind the other.
    """
    lengths = runs["n"].astype(np.int64)
    total = int(lengths.sum())
    if total > MOST_TOKENS:
        raise InputError(f"{total:,} tokens would have to be written out", file=name, expected=f"at most {MOST_TOKENS:,}", hint="Use limit")
    offset = np.cumsum(lengths) - lengths
    within = np.arange(total) - np.repeat(offset, lengths)
    seed = np.repeat(runs["seed"], lengths)
    position = within + np.repeat(runs["start"].astype(np.int64), lengths)
    out = np.empty(total, np.int32)
    given = seed < 0
    out[given] = tokens[-1 - seed[given] + position[given]]
    made = ~given
    out[made] = synthetic(seed[made], position[made])
    new = np.zeros(len(runs), RUN)
    new["seed"], new["start"], new["n"] = -1, offset, lengths
    return new, out


def synthetic(seed: npt.NDArray[np.int64], position: npt.NDArray[np.int64]) -> I4:
    """Token ``position`` of content ``seed``, elementwise: the rule of ``synthetic_tokens``."""
    with np.errstate(over="ignore"):
        z = (seed.astype(np.uint64) << np.uint64(32)) + position.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (np.uint64(1) + z % np.uint64(VOCABULARY - 1)).astype(np.int32)
