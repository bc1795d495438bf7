"""The figures a scenario can speak of: those of every comparison, a fleet's own, and the same of a part of the requests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.comparison.metrics import FINISHED, HIGHER, LOWER, METRICS, NEITHER, Metric, figures, host_figures, waste_share
from simkv.errors import InputError
from simkv.latency import percentiles
from simkv.replay import STATUS, Run
from simkv.scenarios.scenario import PARTS, Where
from simkv.workload.workload import Workload

Bools = npt.NDArray[np.bool_]
_OWN = (
    Metric("requests", "Requests asked about", "requests", NEITHER, "how many requests the figure is about"),
    Metric("prompt_tokens", "Prompt tokens", "tokens", NEITHER, "of the requests that were admitted"),
    Metric("gpu_memory_left_gib", "GPU memory left", "GiB", NEITHER, "of each GPU, outside the share the engine may use"),
    Metric("kv_pool_tokens", "KV pool", "tokens", HIGHER, "tokens for which the pool has room"),
)
_FLEET = (
    Metric("busiest_share", "Busiest replica", "share", LOWER, "requests of the replica that served most ÷ all served"),
    Metric("imbalance", "Imbalance", "factor", LOWER, "prompt and output tokens of the busiest replica ÷ those of the average one"),
    Metric("rerouted", "Sent again", "requests", LOWER, "requests that were sent to another replica after their first one went away"),
)
FIGURES: dict[str, Metric] = {m.key: m for m in (*METRICS, *_OWN, *_FLEET)}
"""Every figure by key."""
OF_A_PART = (
    "requests",
    "prompt_tokens",
    "hit_rate",
    "cached_tokens",
    "preemptions",
    "finished",
    "rejected",
    *(f"{name}_p{p}_s" for name in ("queue", "ttft", "e2e") for p in (50, 95, 99)),
)
"""Those that can be asked of some of the requests only."""


def of_run(run: Run) -> dict[str, float | None]:
    """Every figure of one replica's run by key; ``None`` is no data."""
    left, pool = _memory(run)
    return {
        **figures(run),
        **host_figures(run),
        "waste": waste_share(run),
        "gpu_memory_left_gib": left,
        "kv_pool_tokens": pool,
        **{k: of_requests(run.workload, run.requests)[k] for k in ("requests", "prompt_tokens")},
    }


def of_requests(w: Workload, r: npt.NDArray[Any], which: Bools | None = None) -> dict[str, float | None]:
    """The figures of OF_A_PART over some requests.

    Args:
        w: their workload; may hold others behind them.
        r: REQUEST_RESULT[n].
        which: bool[n], default all.
    """
    keep = np.ones(len(r), np.bool_) if which is None else which
    r, lengths = r[keep], w.num_prompt[: len(r)][keep]
    admitted = np.isfinite(r["scheduled"])
    prompts = int(lengths[admitted].sum(dtype=np.int64))
    hits = int(r["hit"][admitted].sum(dtype=np.int64))
    known = w.prompts_have_content and prompts > 0
    done = r["status"] == FINISHED
    spreads = {
        "queue": percentiles(r["scheduled"] - r["arrive"]),
        "ttft": percentiles(r["first_token"] - r["arrive"]),
        "e2e": percentiles((r["finish"] - r["arrive"])[done]),
    }
    return {
        "requests": len(r),
        "prompt_tokens": prompts,
        "hit_rate": hits / prompts if known else None,
        "cached_tokens": hits if known else None,
        "preemptions": int(r["preempted"].sum(dtype=np.int64)),
        "finished": int(np.count_nonzero(done)),
        "rejected": int(np.count_nonzero(r["status"] == STATUS.index("rejected"))),
        **{f"{name}_{p}_s": value for name, spread in spreads.items() for p, value in spread.items()},
    }


def chosen(where: Where, w: Workload, r: npt.NDArray[Any], placed: npt.NDArray[np.integer[Any]] | None = None) -> Bools:
    """Which requests ``where`` means, bool[n]. A request that never arrived belongs to no part of the time.

    Raises:
        InputError: no tenant of that name, or a replica where there is no fleet.
    """
    keep = np.ones(len(r), np.bool_)
    arrived = np.isfinite(r["arrive"])
    if where.part is not None:
        low, high = PARTS[where.part]
        order = np.argsort(np.where(arrived, r["arrive"], np.inf), kind="stable")
        inside = order[round(low * int(arrived.sum())) : round(high * int(arrived.sum()))]
        keep &= np.isin(np.arange(len(r)), inside)
    if where.from_s is not None:
        keep &= arrived & (r["arrive"] >= where.from_s)
    if where.to_s is not None:
        keep &= arrived & (r["arrive"] < where.to_s)
    if where.tenant is not None:
        if w.tenant is None or where.tenant not in w.tenants:
            known = ", ".join(w.tenants[:12]) or "none"
            raise InputError(f"no request belongs to tenant {where.tenant}", file=w.name, field="tenant", expected=f"one of {known}")
        keep &= w.tenant[: len(r)] == w.tenants.index(where.tenant)
    if where.turn is not None:
        keep &= _first_of_tenant(w, r) == (where.turn == "first")
    if where.replica is not None:
        if placed is None:
            raise InputError("there is one replica only", file=w.name, field="replica", expected="a variant with a fleet")
        keep &= placed == where.replica
    return keep


def _first_of_tenant(w: Workload, r: npt.NDArray[Any]) -> Bools:
    if w.tenant is None:
        raise InputError("the source does not say whose a request is", file=w.name, field="turn", expected="traffic with tenants")
    order = np.argsort(np.where(np.isfinite(r["arrive"]), r["arrive"], np.inf), kind="stable")
    first = np.zeros(len(r), np.bool_)
    first[order[np.unique(w.tenant[: len(r)][order], return_index=True)[1]]] = True
    return first


def _memory(run: Run) -> tuple[float | None, float]:
    """GiB of a GPU that the engine leaves to others (vLLM sized by its GPU only), and tokens in the pool."""
    s, r = run.settings, run.resolved
    pool = float((r.num_gpu_blocks - 1) * r.block_size)
    if s.engine != "vllm" or getattr(s, "num_gpu_blocks", None) is not None:
        return None, pool
    from simkv.hardware import find_gpu

    total = find_gpu(s.gpu).total_bytes
    used = getattr(r, "gpu_memory_utilization", None) or getattr(s, "gpu_memory_utilization", None)
    left = total * (1 - used) / 2**30 if used else math.nan
    return (left if math.isfinite(left) else None), pool
