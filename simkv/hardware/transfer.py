"""KV between GPU and host: how much fits into host memory, and how long bytes take over the link."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.errors import SettingsError
from simkv.hardware.gpus import Gpu
from simkv.hardware.models import Model
from simkv.hardware.tables import GB

F8 = npt.NDArray[np.float64]

LINK_SHARE = 0.8
JOB_S = 20e-6
CHUNK_ALIGNMENT = 4096
_PCIE = {16: "PCIe 3.0 x16", 32: "PCIe 4.0 x16", 64: "PCIe 5.0 x16", 128: "PCIe 6.0 x16"}


@dataclass(frozen=True, slots=True)
class Link:
    """The way between one GPU and host memory. Both directions have this rate, each with a queue of its own.

    Args:
        name: what it is, in words.
        bandwidth: bytes per second that one direction of one GPU reaches.
        job_s: seconds that each transfer takes besides its bytes.
        assumptions: one sentence for each thing the figures rest on.
    """

    name: str
    bandwidth: float
    job_s: float = JOB_S
    assumptions: tuple[str, ...] = ()

    def seconds(self, nbytes: float, jobs: int = 1) -> float:
        """Time of ``jobs`` transfers of together ``nbytes`` bytes over one GPU's link that is otherwise idle."""
        return jobs * self.job_s + nbytes / self.bandwidth


def host_link(gpu: Gpu, bandwidth: float | None = None) -> Link:
    """The link of one GPU to its host: PCIe as the table has it, or a rate somebody measured.

    Args:
        bandwidth: bytes per second and direction that a copy between this GPU and pinned host memory reaches; taken as
            it is. Needed for links that the table does not have, such as NVLink-C2C.

    Raises:
        SettingsError: the rate is no positive number, or the table knows no link and none was given.
    """
    job = f"Each transfer takes {JOB_S * 1e6:g} us besides its bytes (assumed, not measured)."
    queues = "Transfers of one direction follow each other, loads and stores do not slow each other down."
    if bandwidth is not None:
        if not (math.isfinite(bandwidth) and bandwidth > 0):
            raise SettingsError("bandwidth", bandwidth, "bytes per second, more than 0")
        said = f"The link moves {bandwidth / GB:,.1f} GB/s in each direction per GPU, as given."
        return Link("a link as given", float(bandwidth), assumptions=(said, job, queues))
    if gpu.pcie is None:
        raise SettingsError("gpu", gpu.name, "a GPU whose link to the host the table has", "Give the bandwidth yourself")
    name = _PCIE.get(round(gpu.pcie / GB), "PCIe")
    said = f"{gpu.name} has {name}: {gpu.pcie / GB:g} GB/s per direction by the standard, of which copies reach {LINK_SHARE:.0%} (assumed)."
    more = () if gpu.nvlink is None or not gpu.name.startswith("GB") else (_C2C,)
    return Link(name, LINK_SHARE * gpu.pcie, assumptions=(said, job, queues, *more))


_C2C = "Systems of this GPU may reach the host over NVLink-C2C, which the table does not have: give its bandwidth then."


def finish_times(submitted: F8, nbytes: F8, link: Link) -> F8:
    """When transfers of one direction end: first come, first served, one at a time.

    Args:
        submitted: seconds, f8[j], rising.
        nbytes: bytes of each over one GPU's link, f8[j].

    Returns:
        Seconds, f8[j].
    """
    work = np.cumsum(link.job_s + nbytes / link.bandwidth)
    started = submitted.copy()
    started[1:] -= work[:-1]
    return np.asarray(work + np.maximum.accumulate(started), np.float64)


def native_chunk_bytes(block_bytes: int, world_size: int = 1, blocks_per_chunk: int = 1, *, one_copy: bool = False) -> int:
    """Host memory of one chunk of vLLM's native tier: all GPUs' parts, rounded up to a page (vllm 0.32 v1/kv_offload/cpu/spec.py).

    Args:
        block_bytes: bytes of one KV block on one GPU.
        one_copy: the GPUs hold the same (see :func:`one_copy_in_host`), and the host keeps it once.
    """
    chunk = block_bytes * (1 if one_copy else world_size) * blocks_per_chunk
    return -(-chunk // CHUNK_ALIGNMENT) * CHUNK_ALIGNMENT


def simple_blocks(host_bytes: int, block_bytes: int, world_size: int = 1) -> int:
    """Blocks of the simple connector's host pool; the first is the null block, so one less can be used.

    The engine scales its number of GPU blocks by host bytes per GPU over KV bytes of one GPU
    (vllm 0.32 v1/simple_kv_offload/manager.py), which is bytes over bytes of a block, rounded down.
    """
    return max(1, host_bytes // world_size // block_bytes)


def one_copy_in_host(model: Model, world_size: int) -> bool:
    """Whether the native tier keeps what every GPU holds alike only once: MLA models on one machine (vllm 0.32)."""
    return model.mla and world_size > 1
