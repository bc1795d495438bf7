"""Names that old runbooks ask a vLLM server for, and that today's releases do not have: what became of each.

Sampled from /metrics of vLLM 0.10.2, 0.13.0, 0.16.0 and 0.32.0, and from the change logs of the V1 engine.
"""

from __future__ import annotations

from dataclasses import dataclass

RECOMPUTE = "V1 never swaps to host memory: a preempted request is computed again"
OFFLOAD = "vllm:kv_offload_load_bytes, vllm:kv_offload_store_bytes and vllm:external_prefix_cache_hits, if an offloading connector is on"


@dataclass(frozen=True, slots=True)
class Retired:
    """A metric or flag of the past.

    Args:
        name: without ``_total``.
        gone: the release line that has it no more.
        why: one sentence.
        instead: what to look at.
    """

    name: str
    gone: str
    why: str
    instead: str

    @property
    def sentence(self) -> str:
        """For people."""
        return f"{self.name} is not there since {self.gone}: {self.why}. Use {self.instead}."


_TABLE = (
    Retired("vllm:num_requests_swapped", "V1", RECOMPUTE, "vllm:num_preemptions"),
    Retired("vllm:cpu_cache_usage_perc", "V1", RECOMPUTE, OFFLOAD),
    Retired("vllm:cpu_prefix_cache_hit_rate", "V1", RECOMPUTE, OFFLOAD),
    Retired(
        "vllm:gpu_prefix_cache_hit_rate",
        "V1",
        "the rate is no gauge any more",
        "rate(vllm:prefix_cache_hits_total) / rate(vllm:prefix_cache_queries_total)",
    ),
    Retired("vllm:gpu_cache_usage_perc", "0.13", "it was renamed", "vllm:kv_cache_usage_perc"),
    Retired("vllm:gpu_prefix_cache_queries", "0.13", "it was renamed", "vllm:prefix_cache_queries"),
    Retired("vllm:gpu_prefix_cache_hits", "0.13", "it was renamed", "vllm:prefix_cache_hits"),
    Retired("vllm:time_per_output_token_seconds", "0.16", "it was renamed", "vllm:inter_token_latency_seconds"),
    Retired("--preemption-mode", "V1", RECOMPUTE, "nothing: there is no choice left"),
    Retired("--swap-space", "V1", RECOMPUTE, "--kv-offloading-size for a host tier"),
)


def retired() -> tuple[Retired, ...]:
    """Every name known to be gone."""
    return _TABLE


def find_retired(name: str) -> Retired | None:
    """What became of a metric or flag; ``None`` if nothing is known against it.

    Args:
        name: as written in a query: with ``_total``, with labels, or with underscores for the colon.
    """
    plain = name.strip().split("{")[0].removesuffix("_total").replace("vllm_", "vllm:", 1)
    if plain.startswith("--"):
        plain = plain.replace("_", "-").split("=")[0].split(" ")[0]
    return next((r for r in _TABLE if r.name == plain), None)
