"""A workload: what users send, as flat arrays. Content is addressed, not stored token by token.

A prompt is a list of *runs*; a run ``(seed, start, n)`` stands for ``n`` tokens, the tokens ``start … start+n-1`` of
the endless content ``seed``. Two requests share tokens exactly where their runs name the same content at the same
offset, so a 512-token block of a trace is one 16-byte run. Real token ids (tokenised text, recorded prompts) live
in ``Workload.tokens``; a run with a negative seed points there: token ``i`` of it is ``tokens[-1 - seed + start + i]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.errors import InputError

RUN = np.dtype([("seed", "i8"), ("start", "i4"), ("n", "i4")])
ACTION = np.dtype([("at", "f8"), ("req", "i4"), ("op", "i4")])
ABORT, RESET, RESET_RUNNING, RESET_CONNECTOR = 0, 1, 2, 4
"""Of an action: abort; reset_prefix_cache, with ``reset_running_requests``; the last is added for ``reset_connector``."""
IMAGE = np.dtype([("identifier", "i8"), ("offset", "i4"), ("length", "i4")])

OUTPUT_SEED = 1 << 31
"""Generated tokens of request ``i`` are content ``OUTPUT_SEED + i`` unless a source knows better; trace content stays below."""
VOCABULARY = 32_000
LENGTHS = ("num_prompt", "num_output")

I4 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int64]
F8 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lora:
    """An adapter. vLLM's block hash holds name and path, its scheduler counts ``id`` (a whole number)."""

    name: str
    id: int
    path: str


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What a reader saw. Nothing is dropped without standing here."""

    rows: int = 0
    dropped: int = 0
    first_dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Workload:
    """Requests in order of arrival (ties in order of the source). All arrays are read-only.

    Shapes: ``n`` requests; ``first_run`` has ``n + 1`` entries, request ``i`` owns ``runs[first_run[i]:first_run[i+1]]``,
    prompt first, then the tokens it will generate (``num_prompt[i]`` and ``num_output[i]`` tokens). Adjacent runs that
    continue each other are merged, so equal content has one description.

    ``after[i] >= 0`` makes request ``i`` arrive ``arrive[i]`` seconds after request ``after[i]`` has finished (closed
    loop, next turn of a chat); otherwise ``arrive[i]`` is seconds since the start of the workload.
    Chained requests follow their predecessor in the arrays.

    ``max_new``: the request's own limit on generated tokens where it is not ``num_output``, which then ends the answer
    earlier (SGLang's admission counts with the limit). ``extra_key``: a namespace beside the salt, -1 for none (SGLang).
    """

    name: str
    format: str
    arrive: F8
    num_prompt: I4
    num_output: I4
    first_run: I8
    runs: npt.NDArray[np.void]
    tokens: I4 = field(default_factory=lambda: np.zeros(0, np.int32))
    ids: Sequence[str] | None = None
    salt: I4 | None = None
    salts: tuple[str, ...] = ("",)
    lora: I4 | None = None
    loras: tuple[Lora, ...] = ()
    first_image: I8 | None = None
    images: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, IMAGE))
    image_identifiers: tuple[str, ...] = ()
    priority: I4 | None = None
    max_new: I4 | None = None
    ignore_eos: npt.NDArray[np.bool_] | None = None
    extra_key: I4 | None = None
    extra_keys: tuple[str, ...] = ()
    skip_cache: npt.NDArray[np.bool_] | None = None
    max_load_tokens: I4 | None = None
    max_offload_tokens: I4 | None = None
    after: I4 | None = None
    tenant: I4 | None = None
    tenants: tuple[str, ...] = ()
    session: I4 | None = None
    sessions: tuple[str, ...] = ()
    tie: F8 | None = None
    actions: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, ACTION))
    time_unit: str = "seconds"
    prompts_have_content: bool = True
    engine: Mapping[str, Any] = field(default_factory=dict)
    step_time: Mapping[str, Any] = field(default_factory=dict)
    report: ReadReport = ReadReport()

    def __post_init__(self) -> None:
        n = len(self.arrive)
        for name in (
            *LENGTHS,
            "salt",
            "lora",
            "priority",
            "skip_cache",
            "max_load_tokens",
            "max_offload_tokens",
            "max_new",
            "ignore_eos",
            "extra_key",
            "after",
            "tenant",
            "session",
            "tie",
        ):
            column = getattr(self, name)
            if column is not None and len(column) != n:
                raise InputError(f"column {name} has {len(column)} rows, the workload {n}", file=self.name)
        if len(self.first_run) != n + 1:
            raise InputError(f"first_run has {len(self.first_run)} entries for {n} requests", file=self.name)
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __len__(self) -> int:
        return len(self.arrive)

    def id(self, i: int) -> str:
        """The request's name: the source's own, else ``r<i>``."""
        return self.ids[i] if self.ids is not None else f"r{i}"

    @property
    def duration_s(self) -> float:
        """Seconds from the first to the last arrival that is known beforehand."""
        open_loop = self.arrive if self.after is None else self.arrive[self.after < 0]
        return float(open_loop.max() - open_loop.min()) if len(open_loop) else 0.0


def merge_runs(runs: npt.NDArray[np.void], owner: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.void], I8]:
    """Merge each request's adjacent runs that continue each other, and drop empty ones.

    Args:
        runs: ``RUN[m]`` in order of request and position.
        owner: request of each run, ascending, shape ``[m]``.

    Returns:
        ``(RUN[k], owner[k])`` with ``k <= m``.
    """
    keep = runs["n"] > 0
    runs, owner = runs[keep], owner[keep]
    if len(runs) < 2:
        return runs.copy(), owner
    continues = (
        (runs["seed"][1:] == runs["seed"][:-1]) & (runs["start"][1:] == runs["start"][:-1] + runs["n"][:-1]) & (owner[1:] == owner[:-1])
    )
    if not continues.any():
        return runs.copy(), owner
    head = np.concatenate([[True], ~continues])
    merged = runs[head].copy()
    merged["n"] = np.add.reduceat(runs["n"].astype(np.int64), np.flatnonzero(head))
    return merged, owner[head]


def run_offsets(owner: npt.NDArray[np.int64], n: int) -> I8:
    """``first_run`` (shape ``[n + 1]``) from the ascending owner of each run."""
    return np.searchsorted(owner, np.arange(n + 1)).astype(np.int64)


def synthetic_tokens(seed: int, start: int, n: int) -> I4:
    """Token ids of content ``seed``: splitmix64 of ``(seed << 32) + i`` mapped to ``1 … VOCABULARY - 1``.

    This is the recorded runs' own rule, so digests of golden inputs come out byte for byte.
    """
    with np.errstate(over="ignore"):
        z = np.uint64((seed << 32) & 0xFFFF_FFFF_FFFF_FFFF) + np.arange(start, start + n, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (np.uint64(1) + z % np.uint64(VOCABULARY - 1)).astype(np.int32)


def tokens_of(workload: Workload, i: int) -> I4:
    """Prompt and generated token ids of request ``i``, shape ``[num_prompt + num_output]``."""
    parts = [np.zeros(0, np.int32)]
    for run in workload.runs[workload.first_run[i] : workload.first_run[i + 1]]:
        seed, start, n = int(run["seed"]), int(run["start"]), int(run["n"])
        if seed < 0:
            parts.append(workload.tokens[-1 - seed + start : -1 - seed + start + n])
        else:
            parts.append(synthetic_tokens(seed, start, n))
    return np.concatenate(parts)
