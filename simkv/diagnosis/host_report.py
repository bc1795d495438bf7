"""What a run's host tier did, in figures and sentences: the same for the command line and the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simkv import text
from simkv.diagnosis.break_even import BreakEven, break_even
from simkv.diagnosis.host_tier import SIMPLE, Tier, Use, warnings
from simkv.engine.engines import merge
from simkv.events.folds.host import HostHistory, host_history
from simkv.hardware.gpus import find_gpu
from simkv.hardware.kv_bytes import kv_bytes_per_token
from simkv.hardware.transfer import host_link
from simkv.metrics.host import Occupancy, occupancy
from simkv.metrics.tiers import TierRates, tier_rates
from simkv.replay import Run
from simkv.settings import EngineSettings, Settings
from simkv.workload.workload import Workload

NO_METRIC = "vLLM exports no occupancy metric, its kv_offload_cpu_cache_usage_perc is what transfers pin"


@dataclass(frozen=True, eq=False)
class HostReport:
    """A finished run's host tier.

    Args:
        tier: the tier and the pool it serves.
        use: what the run did with it.
        rates: hit rates of device and host.
        external_queries, external_hits: tokens, as vllm:external_prefix_cache_queries and _hits count them.
        load_bytes, store_bytes: bytes that went over the links of all GPUs.
        history: turn by turn; ``None`` without an event log.
        filled: how full the tier was; ``None`` without an event log.
        break_even: loading against computing; ``None`` if model and GPU say nothing about it.
        warnings: what makes the tier useless or harmful, one sentence each.
    """

    tier: Tier
    use: Use
    rates: TierRates
    external_queries: int
    external_hits: int
    load_bytes: int
    store_bytes: int
    history: HostHistory | None
    filled: Occupancy | None
    break_even: BreakEven
    warnings: tuple[str, ...]

    @property
    def unit(self) -> str:
        """What the tier consists of: ``chunks``, or ``blocks`` of the simple connector."""
        return "blocks" if self.tier.connector == SIMPLE else "chunks"

    def summary(self) -> dict[str, Any]:
        """Plain figures, ready for JSON. Tokens, bytes, shares of 1."""
        return {
            "external_queries": self.external_queries,
            "external_hits": self.external_hits,
            "external_hit_rate": self.rates.host,
            "combined_hit_rate": self.rates.combined,
            "host_chunks": self.tier.chunks,
            "host_tokens": self.tier.tokens,
            "host_occupancy_max": self.filled.largest if self.filled else None,
            "host_occupancy_mean": self.filled.mean if self.filled else None,
            "host_stored_chunks": self.use.stored,
            "host_removed_chunks": self.use.evicted,
            "kv_offload_load_bytes": self.load_bytes,
            "kv_offload_store_bytes": self.store_bytes,
            "kv_offload_allocation_failure": self.use.refused,
            "break_even_tokens": self.break_even.length,
            "host_warnings": list(self.warnings),
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """(name, figure, what it is) for people."""
        what, full = self.unit, self.filled
        return [
            (
                "host hit rate",
                text.percent(self.rates.host),
                f"{self.external_hits:,} of {self.external_queries:,} prompt tokens that the GPU did not have came from the host",
            ),
            (
                "found anywhere",
                text.percent(self.rates.combined),
                "GPU and host hits of all prompt tokens looked up; the two rates do not add up",
            ),
            (
                "host occupancy",
                text.percent(full.mean if full else None),
                f"mean over time, at most {text.percent(full.largest if full else None)}, of {self.tier.chunks:,} {what}; {NO_METRIC}"
                + ("" if full else ", and without an event log it is not known"),
            ),
            ("stored", f"{self.use.stored:,}", f"{what} entered the host, {text.memory(self.store_bytes)} over the links"),
            ("evicted", f"{self.use.evicted:,}", f"{what} left it for others"),
            ("loaded", text.memory(self.load_bytes), "came back over the links"),
            ("refused offers", f"{self.use.refused:,}", "for which the host had no room (kv_offload_allocation_failure)"),
        ]


def has_host_tier(settings: Settings, workload: Workload) -> bool:
    """Whether a replay with these settings has a host tier."""
    s = merge(settings, workload)
    return isinstance(s, EngineSettings) and not (s.kv_offloading_size is s.kv_offload_cpu_bytes_to_use is s.kv_offload_num_chunks is None)


def host_report(run: Run) -> HostReport | None:
    """The report of a run; ``None`` if its engine had no host tier."""
    host, counted = getattr(run.resolved, "offload", None), run.host
    if host is None or counted is None or not isinstance(run.settings, EngineSettings):
        return None
    tier = Tier(
        connector=host.connector,
        chunks=host.chunks - (host.connector == SIMPLE),  # the simple pool's first block is its null block
        block_size=run.resolved.block_size,
        gpu_blocks=run.resolved.num_gpu_blocks - 1,
        max_num_batched_tokens=run.resolved.max_num_batched_tokens,
        blocks_per_chunk=host.blocks_per_chunk,
        lazy=host.lazy,
    )
    c = run.counters
    use = Use(
        stored=counted["stored"],
        evicted=counted["removed"],
        loaded=counted["load_blocks"] * run.resolved.block_size,
        refused=counted["refused"],
        hits=c["hits"],
        queries=c["queries"],
    )
    s = run.settings
    per_gpu = kv_bytes_per_token(s.model, s.kv_cache_dtype, s.tensor_parallel_size) * run.resolved.block_size
    block_bytes = per_gpu * s.tensor_parallel_size
    history = host_history(run.log) if run.log is not None else None
    link = host_link(find_gpu(s.gpu), s.kv_offload_bandwidth)
    even = break_even(s, link, longest=max(run.resolved.max_model_len, run.resolved.block_size))
    return HostReport(
        tier=tier,
        use=use,
        rates=tier_rates(c["queries"], c["hits"], counted["queries"], counted["hits"]),
        external_queries=counted["queries"],
        external_hits=counted["hits"],
        load_bytes=counted["load_blocks"] * block_bytes,
        store_bytes=counted["store_blocks"] * block_bytes,
        history=history,
        filled=occupancy(history, run.steps, tier.chunks) if history is not None else None,
        break_even=even,
        warnings=warnings(tier, run.workload.num_prompt, use, even if run.workload.time_unit == "seconds" else None),
    )
