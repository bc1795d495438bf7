"""How long one engine step takes: an index, a straight line, or a roofline of model and GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.engine.step_time_layout import LINEAR, ROOFLINE, STEP_INDEX, STEP_TIME
from simkv.errors import SettingsError
from simkv.hardware.gpus import find_gpu
from simkv.hardware.kv_bytes import element_bytes, layer_bytes_per_token
from simkv.hardware.models import FULL, find_model
from simkv.settings import Settings
from simkv.workload.workload import Workload

BANDWIDTH_SHARE = 0.8
COMPUTE_SHARE = 0.6
LAUNCH_S = 3e-6
LAUNCHES_PER_LAYER = 10
ALL_REDUCE_S = 10e-6


@dataclass(frozen=True, slots=True)
class StepTime:
    """Duration of a step as a function of its batch. Fields as in ``step_time_layout.STEP_TIME``.

    Args:
        kind: STEP_INDEX, LINEAR or ROOFLINE.
        assumptions: one sentence for each thing the figures rest on.
    """

    kind: int
    a: float = 0.0
    b: float = 0.0
    c: float = 0.0
    overhead_s: float = 0.0
    flops_per_token: float = 0.0
    flops_per_token_context: float = 0.0
    weight_bytes: float = 0.0
    kv_bytes_per_token: float = 0.0
    peak_flops: float = 1.0
    bandwidth: float = 1.0
    assumptions: tuple[str, ...] = ()

    def record(self) -> npt.NDArray[np.void]:
        """The coefficients as the compiled engine reads them: ``STEP_TIME[1]``."""
        out = np.zeros(1, STEP_TIME)
        out["mode"] = self.kind
        for name in STEP_TIME.names or ():
            if name != "mode":
                out[name] = getattr(self, name)
        return out

    def seconds(self, rows: Sequence[tuple[int, int]], decoding: int = 0) -> float:
        """Duration of a step that computes ``n`` tokens on top of ``computed`` ones for each row ``(computed, n)``.

        Args:
            decoding: how many rows are decodes (one token each); only the linear form tells them apart.
        """
        tokens = sum(n for _, n in rows)
        if self.kind == STEP_INDEX or tokens == 0:
            return 0.0
        if self.kind == LINEAR:
            return self.a + self.b * (tokens - decoding) + self.c * decoding
        flops = self.flops_per_token * tokens + self.flops_per_token_context * sum(n * (computed + n / 2) for computed, n in rows)
        moved = self.weight_bytes + self.kv_bytes_per_token * sum(computed + n for computed, n in rows)
        return self.overhead_s + max(flops / self.peak_flops, moved / self.bandwidth)


def step_index() -> StepTime:
    """Arrivals are step numbers; a step takes no time, so there are no latencies."""
    return StepTime(STEP_INDEX, assumptions=("Time is counted in steps; latencies in seconds do not exist.",))


def linear(a: float, b: float, c: float) -> StepTime:
    """``a + b * prefill tokens + c * decoding requests`` seconds.

    Raises:
        SettingsError: a coefficient is negative or no finite number.
    """
    for name, value in (("a", a), ("b", b), ("c", c)):
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0):
            raise SettingsError(f"step_time.{name}", value, "a number of at least 0, in seconds")
    said = f"A step takes {a:g} s, plus {b:g} s for each prefill token and {c:g} s for each decoding request."
    return StepTime(LINEAR, a=float(a), b=float(b), c=float(c), assumptions=(said,))


def roofline(settings: Settings) -> StepTime:
    """The longer of computing and moving bytes, for the model, GPU and tensor_parallel_size of the settings.

    Raises:
        SettingsError: unknown model or GPU, or a tensor_parallel_size the model does not allow.
    """
    model, gpu, tp = find_model(settings.model), find_gpu(settings.gpu), settings.tensor_parallel_size
    per_layer = layer_bytes_per_token(model, settings.kv_cache_dtype, tp) * tp
    growing = model.layers_of(FULL)
    fp8 = model.checkpoint_dtype == "fp8" and gpu.fp8_flops is not None
    peak = gpu.fp8_flops if fp8 and gpu.fp8_flops is not None else gpu.bf16_flops
    bytes_per_weight = model.weight_bytes / model.params_total
    read = model.weight_bytes - (0 if model.tied else model.embed_params * bytes_per_weight)
    if model.mla_rank is not None:
        attention = 2 * model.attention_heads * (model.head_dim + model.mla_rank)
    else:
        attention = 4 * model.attention_heads * model.head_dim
    said = [
        f"A step takes the longer of its arithmetic and its memory traffic on {tp} x {gpu.name}, plus a fixed part.",
        f"Memory reaches {BANDWIDTH_SHARE:.0%} of the vendor's {gpu.bandwidth / 1e12:.2f} TB/s (a plain copy reached 90 % on an H200).",
        f"Arithmetic reaches {COMPUTE_SHARE:.0%} of the dense {'fp8' if fp8 else 'bf16'} peak of {peak / 1e12:.0f} TFLOP/s"
        " (a plain matrix product reached 80 % on an H200; attention, norms and small shapes are slower).",
        f"Each step reads {read / 1e9:.2f} GB of weights and every cached token of its batch"
        f" ({per_layer * growing:,} bytes each, {element_bytes(settings.kv_cache_dtype) * 8}-bit KV).",
        f"The fixed part is {LAUNCHES_PER_LAYER} kernel launches of {LAUNCH_S * 1e6:g} us per layer"
        + (f" and two all-reduces of {ALL_REDUCE_S * 1e6:g} us per layer; their traffic is not counted." if tp > 1 else "."),
    ]
    if model.params_active < model.params_total:
        said.append("All experts are read in every step: right for batches of dozens of requests, too slow for a handful.")
    if growing < model.kv_layers or model.hybrid:
        said.append("Layers with a window or a recurrent state are counted as free of context: their cost stops growing early.")
    if gpu.confidence != "high":
        said.append(f"The figures of {gpu.name} are of {gpu.confidence} confidence.")
    return StepTime(
        ROOFLINE,
        overhead_s=model.layers * (LAUNCHES_PER_LAYER * LAUNCH_S + (2 * ALL_REDUCE_S if tp > 1 else 0.0)),
        flops_per_token=2.0 * model.params_in_layers,
        flops_per_token_context=float(attention * growing),
        weight_bytes=read,
        kv_bytes_per_token=float(per_layer * growing),
        peak_flops=COMPUTE_SHARE * peak * tp,
        bandwidth=BANDWIDTH_SHARE * gpu.bandwidth * tp,
        assumptions=tuple(said),
    )


def for_workload(workload: Workload, settings: Settings) -> StepTime:
    """The workload's own rule if it has one (recorded runs do), else the roofline of the settings.

    ``workload.step_time`` is ``{"mode": "step"}`` or ``{"mode": "virtual", "a": …, "b": …, "c": …}``.

    Raises:
        SettingsError: another mode, or a coefficient that is missing or no number.
    """
    given: dict[str, Any] = dict(workload.step_time)
    if not given:
        return roofline(settings)
    mode = given.get("mode")
    if mode == "step":
        return step_index()
    if mode == "virtual":
        return linear(given.get("a", 0.0), given.get("b", 0.0), given.get("c", 0.0))
    raise SettingsError("time.mode", mode, "step or virtual")
