"""The headline: one sentence that says what happened to the cache and why, computed from the run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simkv.ui import text


@dataclass(frozen=True, slots=True)
class Story:
    """The figures a verdict is made from. All rates are in tokens over the whole run.

    Args:
        requests: in the workload; ``finished`` of them finished.
        prompt_tokens: of the requests that were admitted; ``hits`` of them were cached at first admission.
        ceiling: hit rate of the same requests with a pool that never evicts; NaN if it was not computed.
        evicted: keys that left the cache.
        first_eviction_s: moment of the first one, NaN if there was none.
        num_blocks: blocks of the pool, the null block included.
        preemptions: requests thrown out of the batch and computed again; with ``moved`` they went to host memory and back instead.
        ttft_p95_s: time to first token; ``queue_p95_s`` of it waiting for admission; NaN if no request got that far.
        waiting_for: ``compute``, ``seats`` or ``memory``: what requests wait for at most steps.
        rejected: requests longer than max_model_len.
        caching: whether prefix caching was on.
        has_content: whether the source says which prompts share tokens.
        status: ``complete``, ``partial``, ``stalled`` or ``crashed``.
        end_s: simulated end.
        from_host: prompt tokens that came from the host tier at first admission; ``None`` without one.
        below_block: tokens that prompts share at most, where all they share is less than one block; else 0.
    """

    requests: int
    finished: int
    prompt_tokens: int
    hits: int
    ceiling: float
    evicted: int
    first_eviction_s: float
    num_blocks: int
    block_size: int
    preemptions: int
    ttft_p95_s: float
    queue_p95_s: float
    waiting_for: str = "compute"
    rejected: int = 0
    caching: bool = True
    has_content: bool = True
    status: str = "complete"
    end_s: float = math.nan
    time_unit: str = "seconds"
    moved: bool = False
    from_host: int | None = None
    below_block: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that came from the cache; NaN if nobody was admitted or the source says nothing about content."""
        return self.hits / self.prompt_tokens if self.prompt_tokens and self.has_content else math.nan

    @property
    def lost(self) -> float:
        """Points of hit rate that a pool without evictions would add; NaN if unknown."""
        return self.ceiling - self.hit_rate


_WAITING = {
    "compute": "they come faster than this replica computes",
    "seats": "max_num_seqs is reached",
    "memory": "the running ones hold the pool",
}


def verdict(story: Story) -> str:
    """One sentence (two where latency is the other half of the story)."""
    return " ".join(s for s in (_partial(story), _cache(story), _host(story), _rejected(story), _latency(story)) if s)


def _partial(s: Story) -> str:
    if s.status == "partial":
        return f"Partial result, stopped at {_moment(s, s.end_s)} with {s.finished:,} of {text.counted(s.requests, 'request')} finished."
    if s.status == "crashed":
        return f"The engine died with {s.finished:,} of {text.counted(s.requests, 'request')} finished: its own check failed."
    if s.status == "stalled":
        return f"The engine stalled with {s.finished:,} of {text.counted(s.requests, 'request')} finished: the next one never fits."
    return ""


def _cache(s: Story) -> str:
    pool = f"the pool of {s.num_blocks:,} blocks ({text.short_count(s.num_blocks * s.block_size)} tokens)"
    rate, best = text.percent(s.hit_rate), text.percent(s.ceiling)
    if not s.prompt_tokens and s.caching:
        return "No request was admitted, so nothing was looked up in the cache."
    if not s.caching:
        known = f"; an unlimited cache would have answered {best} of them" if math.isfinite(s.ceiling) else ""
        return f"Prefix caching is off: every prompt token was computed{known}."
    if not s.has_content:
        return f"This trace has lengths but no content, so no prompt can hit: {pool} is judged for memory and waiting only."
    if not math.isfinite(s.ceiling):
        were = "was" if s.evicted == 1 else "were"
        evicted = f"{text.counted(s.evicted, 'block')} {were} evicted" if s.evicted else "nothing was evicted"
        return f"{rate} of prompt tokens came from the cache, and {evicted}."
    if s.evicted and s.lost >= 0.01:
        since = f" from {_moment(s, s.first_eviction_s)} on" if math.isfinite(s.first_eviction_s) else ""
        return f"{rate} of prompt tokens came from the cache, {best} could have: {pool} evicts prefixes before they return{since}."
    if s.evicted:
        return f"{rate} of prompt tokens came from the cache, as many as without any eviction: what {pool} evicts does not return."
    if s.hit_rate < 0.01:
        few = f"Only {rate} of prompt tokens" if s.hits else "No prompt token"
        if s.below_block:
            short = (
                f"these prompts share at most their first {text.counted(s.below_block, 'token')}, less than one block of {s.block_size:,}"
            )
            return f"{few} came from the cache, though nothing was evicted: {short}."
        return f"{few} came from the cache, though nothing was evicted: these prompts share next to nothing."
    return f"{rate} of prompt tokens came from the cache and nothing was evicted: {pool} holds every prefix."


def _host(s: Story) -> str:
    if s.from_host is None or not s.prompt_tokens or not s.has_content:
        return ""
    if not s.from_host:
        return "Nothing came from the host tier."
    found = text.percent((s.hits + s.from_host) / s.prompt_tokens)
    return f"The host tier gave back another {text.percent(s.from_host / s.prompt_tokens)}: {found} were not computed."


def _rejected(s: Story) -> str:
    if not s.rejected:
        return ""
    are = "is longer than max_model_len and was" if s.rejected == 1 else "are longer than max_model_len and were"
    return f"{s.rejected:,} of {text.counted(s.requests, 'request')} {are} rejected."


def _latency(s: Story) -> str:
    if s.time_unit != "seconds":
        return _preempted(s)
    waits = s.queue_p95_s > 5 and s.queue_p95_s > 0.5 * s.ttft_p95_s
    if waits:
        because = _WAITING[s.waiting_for]
        return f"One request in 20 waits {text.seconds(s.queue_p95_s)} or longer for admission: {because}."
    return _preempted(s)


def _preempted(s: Story) -> str:
    if not s.preemptions:
        return ""
    if s.moved:
        times = "1 request was" if s.preemptions == 1 else f"Requests were {s.preemptions:,} times"
        return f"{times} moved to host memory as a whole, to make room for one that waited."
    once = "1 request was preempted and computed" if s.preemptions == 1 else f"Requests were preempted {s.preemptions:,} times and computed"
    return f"{once} again because running requests outgrew the pool."


def _moment(s: Story, at: float) -> str:
    return text.clock(at) if s.time_unit == "seconds" else f"step {at:,.0f}"
