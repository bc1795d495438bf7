"""GPUs: memory as the driver and torch report it, bandwidth and compute as the vendor states them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from simkv.hardware.tables import GB, GIB, MIB, find, rows


@dataclass(frozen=True, slots=True)
class Gpu:
    """One row of gpus.csv.

    Args:
        marketing_gb: the number on the box; never used in arithmetic.
        driver_bytes: total memory as nvidia-smi shows it.
        total_bytes: total memory as torch sees it, which is what the engine multiplies by gpu_memory_utilization;
            the lower end of the range seen.
        bandwidth: memory bytes per second, vendor figure.
        bf16_flops: dense bf16 operations per second, vendor figure. ``fp8_flops`` likewise, ``None`` if it has none.
        pcie, nvlink: bytes per second and direction; ``None`` if it has none.
        confidence: high, medium or low.
    """

    name: str
    vendor: str
    marketing_gb: int
    driver_bytes: int
    total_bytes: int
    bandwidth: float
    bf16_flops: float
    fp8_flops: float | None
    pcie: float | None
    nvlink: float | None
    tdp_w: int
    architecture: str
    source: str
    confidence: str


@cache
def gpus() -> dict[str, Gpu]:
    """All GPUs of gpus.csv by name."""
    return {r["gpu"]: _gpu(r) for r in rows("gpus")}


def find_gpu(name: str) -> Gpu:
    """One GPU by name. Raises ``SettingsError`` with the nearest names if there is none."""
    return find("gpu", name, gpus(), "gpus")


def _gpu(r: dict[str, str]) -> Gpu:
    def giga(column: str, unit: float = GB) -> float | None:
        return float(r[column]) * unit if r[column] else None

    return Gpu(
        name=r["gpu"],
        vendor=r["vendor"],
        marketing_gb=int(r["mem_marketing_gb"]),
        driver_bytes=int(r["nvidia_smi_total_mib"]) * MIB,
        total_bytes=int(float(r["torch_total_gib_seen"].split("-")[0]) * GIB),
        bandwidth=float(r["hbm_bw_gb_s"]) * GB,
        bf16_flops=float(r["bf16_dense_tflops"]) * 1e12,
        fp8_flops=giga("fp8_dense_tflops", 1e12),
        pcie=giga("pcie_gb_s_per_dir"),
        nvlink=giga("nvlink_gb_s_per_dir"),
        tdp_w=int(r["tdp_w"]),
        architecture=f"sm_{r['sm']}" if r["sm"].isdigit() else r["sm"],
        source=r["source"],
        confidence=r["confidence"],
    )
