"""Hit rates of device and host: two counters over two denominators, so they are never added up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TierRates:
    """Hit rates in tokens; ``None`` where nothing was looked up.

    Args:
        device: found on the device ÷ looked up (vllm:prefix_cache_hits ÷ _queries).
        host: loaded from the host ÷ looked up there, which is what the device did not have
            (vllm:external_prefix_cache_hits ÷ _queries): a rate given that the device missed.
        host_of_all: loaded from the host ÷ looked up on the device. This one adds up with ``device``.
        combined: found anywhere ÷ looked up.
    """

    device: float | None
    host: float | None
    host_of_all: float | None
    combined: float | None


def tier_rates(queries: int, hits: int, external_queries: int, external_hits: int) -> TierRates:
    """Rates from the engine's four counters (tokens)."""
    return TierRates(
        _share(hits, queries),
        _share(external_hits, external_queries),
        _share(external_hits, queries),
        _share(hits + external_hits, queries),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
