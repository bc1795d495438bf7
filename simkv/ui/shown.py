"""A finished run with everything the page draws from it. Folds are made once and kept; nothing here calls Streamlit."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.diagnosis.first_block import first_block
from simkv.diagnosis.host_report import HostReport, host_report
from simkv.diagnosis.why import KeyHistory, Miss, why_missed
from simkv.events.folds.block_map import BlockHistory, block_history, encode
from simkv.events.folds.pool import PoolFold, PoolState
from simkv.latency import percentiles
from simkv.metrics.series import series
from simkv.replay import Run
from simkv.ui.block_map.payload import payload
from simkv.ui.config import Config
from simkv.ui.timeline import Timeline
from simkv.ui.verdict import Story

MAX_FRAMES = 2000
MAX_CHANGES = 12_000_000
"""Changes of block state sent to the browser, about a byte each on the wire; a run with more gets fewer frames."""
KEPT_STATES = 6
MAP_HEIGHT = 392


@dataclass(eq=False)
class Shown:
    """What the page shows of one run.

    Args:
        config: what was asked.
        run: what came out; ``run.log`` is ``None`` if the log was too big.
        ceiling: hit rate of the same requests with a pool that never evicts; NaN if not computed.
        ceiling_blocks: size of that pool.
        history: the block map; ``None`` without a log.
        blob: the history as the browser gets it.
        note: why there is no map.
        part: what tells this replica of a fleet from the others of the same configuration.
        only: the requests that this replica of a fleet got; ``None``: all.
    """

    config: Config
    run: Run
    ceiling: float = math.nan
    ceiling_blocks: int = 0
    history: BlockHistory | None = None
    blob: bytes = b""
    note: str = ""
    part: str = ""
    only: npt.NDArray[np.int64] | None = None
    _states: OrderedDict[int, PoolState] = field(default_factory=OrderedDict, repr=False)
    _curves: dict[int, dict[str, npt.NDArray[np.float64]]] = field(default_factory=dict, repr=False)
    _misses: dict[int, Miss] = field(default_factory=dict, repr=False)
    _history: KeyHistory | None = field(default=None, repr=False)
    _fold: PoolFold | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _asking: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def digest(self) -> str:
        """Identity of the run."""
        return self.config.digest + self.part

    @cached_property
    def nbytes(self) -> int:
        """Memory the run holds, near enough for the store's bound."""
        log = self.run.log
        arrays = [self.run.requests, self.run.steps, self.run.gaps, *((log.events, log.keys) if log else ())]
        return sum(int(a.nbytes) for a in arrays) + 2 * len(self.blob)

    @cached_property
    def timeline(self) -> Timeline:
        """Windowed figures."""
        return Timeline(self.run.steps, self.run.requests, max(1, self.run.resolved.num_gpu_blocks - 1), self.time_unit)

    def curves(self, points: int) -> dict[str, npt.NDArray[np.float64]]:
        """The run's series at ``points`` moments, with the cards' window; kept."""
        if points not in self._curves:
            self._curves[points] = series(self.run, points, self.timeline.window)
        return self._curves[points]

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The command line's figures."""
        return {**self.run.summary(), **(self.host.summary() if self.host is not None else {})}

    @cached_property
    def host(self) -> HostReport | None:
        """What the host tier did; ``None`` without one."""
        return host_report(self.run)

    @property
    def counted_hit_rate(self) -> float:
        """Hits over queries as the release's counters have them over the run; NaN if there is none."""
        return _known(self.summary["hit_rate"])

    @property
    def time_unit(self) -> str:
        """``seconds`` or ``steps``."""
        return self.run.workload.time_unit

    @property
    def last_step(self) -> int:
        """Index of the last step; 0 if there was none."""
        return max(0, len(self.run.steps) - 1)

    def frame_step(self, step: int) -> int:
        """The step of the first frame at or after ``step``: the map shows frames, and one frame may sum up several steps."""
        inside = max(0, min(self.last_step, step))
        if self.history is None:
            return inside
        return int(self.history.frames[np.searchsorted(self.history.frames, inside)])

    def frame_first_step(self, step: int) -> int:
        """The first of the steps that the frame ending with ``step`` sums up."""
        if self.history is None:
            return step
        at = int(np.searchsorted(self.history.frames, step))
        return int(self.history.frames[at - 1]) + 1 if at else 0

    @cached_property
    def start_step(self) -> int:
        """Where the page opens."""
        return self.frame_step(story_step(self.timeline))

    @cached_property
    def start_block(self) -> int | None:
        """The block the page opens on: the next victim at ``start_step``."""
        state = self.state(self.start_step)
        queue = state.free_queue() if state is not None else np.zeros(0, np.int32)
        return int(queue[0]) if len(queue) else None

    def state(self, step: int) -> PoolState | None:
        """The pool after a step; ``None`` without a log."""
        if self.run.log is None:
            return None
        with self._lock:
            found = self._states.get(step)
            if found is None:
                self._fold = self._fold or PoolFold(self.run.log)
                found = self._states[step] = self._fold.seek(step)
                if len(self._states) > KEPT_STATES:
                    self._states.popitem(last=False)
            else:
                self._states.move_to_end(step)
            return found

    @property
    def keys_known(self) -> bool:
        """Whether ``why`` answers at once: the log's keys are in order, or there is no log."""
        return self.run.log is None or self._history is not None

    def why(self, request: int) -> Miss:
        """Why a request's prompt did not hit (further); kept. The first answer puts the log's keys in order."""
        with self._asking:
            if self._history is None and self.run.log is not None:
                self._history = KeyHistory(self.run.log)
            if request not in self._misses:
                self._misses[request] = why_missed(self.run, request, self._history)
            return self._misses[request]

    @cached_property
    def story(self) -> Story:
        """The figures behind the headline."""
        run, s = self.run, self.summary
        prompts, hits = from_cache(run)
        evicting = np.flatnonzero(run.steps["removed"] > 0)
        return Story(
            requests=len(run.workload) if self.only is None else len(self.only),
            finished=int(s["finished"]),
            prompt_tokens=prompts,
            hits=hits,
            ceiling=self.ceiling,
            evicted=int(s["removed_blocks"]),
            first_eviction_s=float(run.steps["time"][evicting[0]]) if len(evicting) else math.nan,
            num_blocks=run.resolved.num_gpu_blocks,
            block_size=run.resolved.block_size,
            preemptions=int(s["preemptions"]),
            ttft_p95_s=_known(percentiles(run.requests["first_token"] - run.requests["arrive"])["p95"]),
            queue_p95_s=_known(percentiles(run.requests["scheduled"] - run.requests["arrive"])["p95"]),
            rejected=int(s["rejected"]),
            waiting_for=waiting_for(run),
            caching=run.resolved.enable_prefix_caching,
            has_content=run.workload.prompts_have_content,
            status=run.status,
            end_s=float(run.steps["end"][-1]) if len(run.steps) else math.nan,
            time_unit=self.time_unit,
            from_host=self.host.external_hits if self.host is not None else None,
            moved=run.resolved.engine == "contiguous",
            below_block=below_block(run),
        )


def below_block(run: Run) -> int:
    """Tokens that prompts share at their beginning, where that is less than one block and nothing was found; else 0."""
    found = first_block(run.workload, run.resolved.scheduler_block_size) if not run.counters["hits"] else None
    return found.longest if found is not None and found.sentence is not None else 0


def from_cache(run: Run) -> tuple[int, int]:
    """Prompt tokens of the requests that were admitted, and how many of them their first admission found in the cache.

    The lookup counters say the same only since vLLM 0.27: before, a request that waits is counted at every attempt.
    """
    admitted = np.isfinite(run.requests["scheduled"])
    prompts = int(run.workload.num_prompt[admitted].sum(dtype=np.int64))
    return prompts, int(run.requests["hit"][admitted].sum(dtype=np.int64))


def waiting_for(run: Run) -> str:
    """What requests wait for most of the simulated time: ``compute`` (a step's token budget), ``seats`` (max_num_seqs) or ``memory``."""
    steps, r = run.steps, run.resolved
    waits = steps["waiting"] > 0
    lost = np.where(waits, steps["duration"], 0.0)
    full = steps["prefill"] + steps["decode"] >= 0.95 * r.token_budget
    seats = steps["running"] >= r.max_running
    shares = {"compute": float(lost[full].sum()), "seats": float(lost[seats & ~full].sum()), "memory": float(lost[~seats & ~full].sum())}
    return max(shares, key=lambda name: shares[name])


def story_step(timeline: Timeline) -> int:
    """The step to open at: evictions under way and the windowed hit rate at its lowest, else the fullest pool, else the end."""
    steps = timeline.steps
    if not len(steps):
        return 0
    t, removed = timeline, steps["removed"]
    busy = 0.5 * t.looked_up(len(steps) - 1) if t.window >= t.duration else 0.5 * float(steps["queries"].sum()) * t.window / t.duration
    candidates = [int(s) for s in t.samples(200) if t.time[s] >= t.time[0] + 2 * t.window and t.evictions(int(s)) > 0]
    rated = [(t.hit_rate(s), s) for s in candidates if t.looked_up(s) >= busy]
    if rated:
        rate, lowest = min(rated)
        near = np.arange(max(0, lowest - 1000), min(len(steps), lowest + 1000))
        near = near[t.rolling.hit_rate(t.rolling.after(near)) <= rate + 0.02]
        return int(near[np.argmax(removed[near])])
    if removed.any():
        return int(np.argmax(removed))
    return int(np.argmin(steps["free"]))


def fold(shown: Shown) -> Shown:
    """Add the block map to a run. Without a log the page shows its series only."""
    run, log = shown.run, shown.run.log
    if log is None:
        return dataclasses.replace(
            shown, note=shown.note or "This run's event log was too big to keep, so there is no block map. Limit the requests to see it."
        )
    if not len(log.steps):
        return dataclasses.replace(shown, note="No step was made, so there is nothing to draw.")
    # A frame changes each block at most once, so so many frames fit without a second try.
    frames = MAX_FRAMES if len(log) <= MAX_CHANGES else max(100, min(MAX_FRAMES, MAX_CHANGES // run.resolved.num_gpu_blocks))
    history = block_history(log, frames, MAX_CHANGES)
    shown = dataclasses.replace(shown, history=history)
    start = int(np.searchsorted(history.frames, shown.start_step))
    meta = {"run": shown.digest, "start": start, "time_unit": shown.time_unit, "t0": 0.0, "height": MAP_HEIGHT}
    return dataclasses.replace(shown, blob=payload(encode(history), meta))


def unlimited_blocks(run: Run) -> int:
    """Blocks with which the same requests never evict anything: every block of every request has room at once."""
    w, r = run.workload, run.resolved
    size = min(g.block_size or r.block_size for g in r.groups)
    tokens = w.num_prompt.astype(np.int64) + w.num_output
    all_at_once = int((-(-tokens // size)).sum()) * len(r.groups)
    starts_up = -(-r.max_model_len // size) * len(r.groups)
    return int(max(all_at_once, starts_up, r.num_gpu_blocks)) + 2


def _known(value: float | None) -> float:
    return math.nan if value is None else value
