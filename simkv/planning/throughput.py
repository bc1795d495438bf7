"""Which request rate each memory scheme sustains at the same latency (PagedAttention, SOSP'23, section 6.2).

As in the paper: lengths of a real sample, Poisson arrivals, latency as the mean over all requests of (end to end ÷ output
tokens), in seconds per token; the rate rises until that latency passes a target. The paged system is this project's vLLM, the
others are its contiguous baselines, all with the same model, GPU, pool and model of a step's duration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.contract import FINISHED
from simkv.errors import InputError, SettingsError
from simkv.metrics.waste import waste
from simkv.replay import Run, replay
from simkv.settings import ContiguousSettings, EngineSettings
from simkv.settings.base import Settings
from simkv.workload.assemble import chunk_runs
from simkv.workload.workload import Workload

I8 = npt.NDArray[np.int64]
MODEL, GPU, MAX_MODEL_LEN = "OPT-13B", "A100-SXM4-40GB", 2048
"""The paper's smallest configuration."""
TARGET_S = 0.1
FIRST_RATE, GROWTH, MOST_RATES = 0.1, 1.4, 40
PAPER = {
    "max, buddy": "2.7 to 8",
    "oracle, buddy": "1.7 to 2.7",
    "static": "up to 22",
}
"""How many times the rate of each baseline vLLM sustains in the paper (ShareGPT, three models)."""


@dataclass(frozen=True, slots=True)
class Point:
    """One replay: rate in requests/s, latency in seconds per output token, mean requests computing at once while any does."""

    rate: float
    latency_s: float
    running: float


@dataclass(frozen=True, slots=True)
class Sustained:
    """What one scheme sustains. ``rate`` is ``None`` if even the lowest rate tried is above the target.

    ``running`` belongs to the last rate below the target, and so does ``memory``: the mean share of the pool for each part of
    simkv/metrics/waste.py. ``paged_is_better`` is paged memory's rate ÷ this one.
    """

    scheme: str
    rate: float | None
    running: float | None
    paged_is_better: float | None
    paper: str | None
    memory: dict[str, float] | None
    curve: tuple[Point, ...]

    def to_mapping(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def schemes(model: str = MODEL, gpu: str = GPU, max_model_len: int = MAX_MODEL_LEN, **more: Any) -> dict[str, Settings]:
    """Paged memory first, then the baselines. ``more`` are settings all of them have (``num_gpu_blocks``, ``max_num_seqs`` …)."""
    shared = {"model": model, "gpu": gpu, "max_model_len": max_model_len, **more}
    return {
        "paged": EngineSettings(**shared),
        "oracle, exact": ContiguousSettings(reservation="oracle", allocator="first_fit", **shared),
        "oracle, buddy": ContiguousSettings(reservation="oracle", **shared),
        "pow2, buddy": ContiguousSettings(reservation="pow2", **shared),
        "max, buddy": ContiguousSettings(reservation="max", **shared),
        "static": ContiguousSettings(reservation="max", batching="static", **shared),
    }


def traffic(num_prompt: I8, num_output: I8, rate: float, seed: int) -> Workload:
    """The requests in random order with Poisson arrivals; nothing is shared between them.

    For one seed the order and the gaps between arrivals, up to the rate, are always the same.
    """
    n = len(num_prompt)
    draw = np.random.default_rng(seed)
    order = draw.permutation(n)
    arrive = np.cumsum(draw.exponential(1.0, n)) / rate
    p, o = num_prompt[order], num_output[order]
    runs, first = chunk_runs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(n, np.int64), p, o, 0)
    return Workload("lengths", "lengths", arrive, p.astype(np.int32), o.astype(np.int32), first, runs)


def normalised_latency(run: Run) -> float:
    """Mean over finished requests of end-to-end seconds ÷ output tokens."""
    r = run.requests[run.requests["status"] == FINISHED]
    return float(np.mean((r["finish"] - r["arrive"]) / r["generated"])) if len(r) else float("nan")


def measure(num_prompt: I8, num_output: I8, settings: Settings, rate: float, seed: int) -> Point:
    """Replay one rate."""
    run = replay(traffic(num_prompt, num_output, rate, seed), settings, events=False)
    computing = run.steps["duration"] > 0
    lasts, running = run.steps["duration"][computing], run.steps["running"][computing]
    return Point(rate, normalised_latency(run), float(np.average(running, weights=lasts)) if len(lasts) else 0.0)


def memory(num_prompt: I8, num_output: I8, settings: Settings, rate: float, seed: int) -> dict[str, float] | None:
    """Mean share of the pool for each part of simkv/metrics/waste.py at one rate."""
    found = waste(replay(traffic(num_prompt, num_output, rate, seed), settings))
    return None if found is None else found.shares()


def curve(at: Callable[[float], Point], target_s: float, first_rate: float = FIRST_RATE, growth: float = GROWTH) -> list[Point]:
    """Points at rates that grow by the same factor until the latency is above the target."""
    points = [at(first_rate)]
    while points[-1].latency_s <= target_s and len(points) < MOST_RATES:
        points.append(at(points[-1].rate * growth))
    return points


def sustained_rate(points: Sequence[Point], target_s: float) -> float | None:
    """Where the latency passes the target, by a straight line between the two rates around it; ``None`` if it never was below."""
    if points[0].latency_s > target_s:
        return None
    below, above = points[-2:] if len(points) > 1 and points[-1].latency_s > target_s else (points[-1], points[-1])
    if below is above:
        return below.rate
    share = (target_s - below.latency_s) / (above.latency_s - below.latency_s)
    return below.rate + share * (above.rate - below.rate)


def equal_latency(
    num_prompt: I8, num_output: I8, settings: dict[str, Settings], *, target_s: float = TARGET_S, seed: int = 0, refine: int = 3
) -> list[Sustained]:
    """What every scheme sustains on the same requests.

    Args:
        num_prompt, num_output: tokens, shape ``[n]``.
        settings: the schemes by name; the first is the one the others are compared with.
        refine: how often the interval around the target is halved after the coarse search.

    Raises:
        SettingsError: a target that is no positive number, or settings that cannot start.
        InputError: no request.
    """
    if not (np.isfinite(target_s) and target_s > 0):
        raise SettingsError("latency", target_s, "seconds per output token, more than 0")
    if not len(num_prompt):
        raise InputError("no request is left to replay")
    found: list[Sustained] = []
    for name, s in settings.items():
        points = _search(lambda rate, s=s: measure(num_prompt, num_output, s, rate, seed), target_s, refine)  # type: ignore[misc]
        rate = sustained_rate(points, target_s)
        below = [p for p in points if p.latency_s <= target_s]
        best = found[0].rate if found else rate
        ratio = best / rate if rate and best else None
        running = below[-1].running if below else None
        held = memory(num_prompt, num_output, s, below[-1].rate, seed) if below else None
        found.append(Sustained(name, rate, running, ratio, PAPER.get(name), held, tuple(points)))
    return found


def _search(at: Callable[[float], Point], target_s: float, refine: int) -> list[Point]:
    points = curve(at, target_s)
    for _ in range(refine if len(points) > 1 and points[-1].latency_s > target_s else 0):
        middle = at((points[-2].rate * points[-1].rate) ** 0.5)
        points = [*points[:-1], middle, points[-1]] if middle.latency_s <= target_s else [*points[:-1], middle]
    return points


def uniform(num_prompt: I8, num_output: I8) -> tuple[I8, I8]:
    """As many requests, all of the mean length: the same work without the variety."""
    n = len(num_prompt)
    return np.full(n, round(float(num_prompt.mean())), np.int64), np.full(n, round(float(num_output.mean())), np.int64)
