"""Why did this request miss? The first block that was not found, and what had become of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simkv.engine.vllm.chain import chain_keys
from simkv.events import layout as ev
from simkv.events.log import EventLog
from simkv.replay import Run


@dataclass(frozen=True, slots=True)
class Miss:
    """The answer for one request's first admission.

    Args:
        kind: ``nothing to miss``, ``new content``, ``evicted``, ``below a block``, ``last token``, ``caching off``,
            ``not read``, ``other namespace``, ``not stored``, ``never admitted``.
        sentence: the answer in words.
        hit_tokens, prompt_tokens: of the first admission.
        first_missing_block: logical index of the first block that was not found.
        evicted_step, evicted_for: turn and request whose allocation took the block away.
        stored_by: request that had stored it.
        shared_with: request in another namespace (salt or adapter) that had stored the same content.
    """

    kind: str
    sentence: str
    hit_tokens: int
    prompt_tokens: int
    first_missing_block: int | None = None
    evicted_step: int | None = None
    evicted_for: int | None = None
    stored_by: int | None = None
    shared_with: int | None = None


class KeyHistory:
    """Where each key entered and left the cache; built once for a log, asked for many requests."""

    def __init__(self, log: EventLog) -> None:
        kind = log.events["kind"] & ev.KIND_MASK
        self.log = log
        self._stored = np.flatnonzero((kind == ev.STORED) | (kind == ev.STORED_EXTRA))
        self._order = np.argsort(log.keys, kind="stable")
        self._sorted = log.keys[self._order]
        self._gone = np.flatnonzero((kind == ev.RECYCLED) | (kind == ev.CLEARED))
        self._firsts = np.append(log.steps["first_event"], len(log.events))
        admitted = np.flatnonzero(kind == ev.ADMITTED)
        owner = np.asarray(log.events["req"])
        changes = np.flatnonzero(np.diff(owner, prepend=-2) != 0)
        first = changes[np.searchsorted(changes, admitted, side="right") - 1]
        self.admission = dict(zip(owner[admitted].tolist(), first.tolist(), strict=True))
        """Request -> first row of its admission (hits, blocks and keys of an admission stand before ADMITTED)."""

    def stores(self, key: int, before: int) -> npt.NDArray[np.int64]:
        """Rows before row ``before`` that stored the key, ascending."""
        low, high = np.searchsorted(self._sorted, np.uint64(key)), np.searchsorted(self._sorted, np.uint64(key), side="right")
        rows = np.sort(self._stored[self._order[low:high]])
        return rows[rows < before]

    def removal(self, stored: int, before: int) -> int | None:
        """Row that took the block stored at row ``stored`` out of the cache, before row ``before``."""
        block = self.log.events["arg"][stored]
        rows = self._gone[np.searchsorted(self._gone, stored) : np.searchsorted(self._gone, before)]
        hit = rows[(self.log.events["arg"][rows] == block) | ((self.log.events["kind"][rows] & ev.KIND_MASK) == ev.CLEARED)]
        return int(hit[0]) if len(hit) else None

    def turn(self, row: int) -> int:
        """Turn in which a row was written."""
        return int(np.searchsorted(self._firsts, row, side="right") - 1)


def why_missed(run: Run, req: int, history: KeyHistory | None = None) -> Miss:
    """Explain the first admission of request ``req``. Needs the run's event log.

    For hybrid models the answer is about the first group, whose blocks decide in most cases.
    """
    w, s, log = run.workload, run.resolved, run.log
    prompt, hit = int(w.num_prompt[req]), int(run.requests["hit"][req])
    size = s.groups[0].block_size or s.block_size
    name = w.id(req)
    if np.isnan(run.requests["scheduled"][req]):
        return Miss("never admitted", f"{name} was never admitted in this run.", 0, prompt)
    if not s.enable_prefix_caching:
        return Miss("caching off", "Prefix caching is off.", 0, prompt)
    if w.skip_cache is not None and w.skip_cache[req]:
        return Miss("not read", f"{name} does not read the cache (skip_reading_prefix_cache).", 0, prompt)
    most = (prompt - 1) // s.scheduler_block_size * s.scheduler_block_size
    if most == 0:
        text = f"{name} has {prompt} prompt tokens; a hit needs a full block of {s.scheduler_block_size} before the last token."
        return Miss("below a block", text, hit, prompt)
    if hit >= most:
        rest = prompt - hit
        text = (
            f"{name} found all it could: {hit:,} of {prompt:,} tokens. The last {rest} are always computed, since only full blocks"
            f" of {s.scheduler_block_size} before the last token can be hit."
        )
        return Miss("nothing to miss", text, hit, prompt)
    if log is None:
        return Miss("not known", "The run kept no event log.", hit, prompt)
    return _first_missing(run, req, hit, prompt, size, history or KeyHistory(log))


def _first_missing(run: Run, req: int, hit: int, prompt: int, size: int, history: KeyHistory) -> Miss:
    w, block, name = run.workload, hit // size, run.workload.id(req)
    stride = size // run.resolved.hash_block_size
    keys = chain_keys(w, req, run.resolved.hash_block_size, lora_path=run.resolved.profile.lora_path_in_key)
    key = int(keys[(block + 1) * stride - 1])
    admitted = history.admission[req]
    stores = history.stores(key, admitted)
    where = f"block {block} (tokens {block * size:,} to {(block + 1) * size - 1:,})"
    found = f"{name} found {hit:,} of {prompt:,} tokens. "
    if len(stores):
        gone = [(history.removal(int(row), admitted), int(row)) for row in stores]
        lost = [(out, row) for out, row in gone if out is not None]
        if len(lost) == len(gone):
            out, row = max(lost)
            events = run.log.events if run.log is not None else np.zeros(0, ev.EVENT)
            taker, writer, turn = int(events["req"][out]), int(events["req"][row]), history.turn(out)
            ago = _since(run, turn, req)
            if int(events["kind"][out]) & ev.KIND_MASK == ev.CLEARED:
                text = f"{found}Its {where} was cached by {w.id(writer)}, but reset_prefix_cache cleared it {ago}."
                return Miss("cleared", text, hit, prompt, block, turn, None, writer)
            text = f"{found}Its {where} was cached by {w.id(writer)}, but evicted {ago} to make room for {w.id(taker)}."
            return Miss("evicted", text, hit, prompt, block, turn, taker, writer)
        text = f"{found}Its {where} is cached, but no resume point that every layer group agrees on lies behind it."
        return Miss(
            "not stored", text, hit, prompt, block, stored_by=int(run.log.events["req"][stores[0]]) if run.log is not None else None
        )
    other = _other_namespace(run, req, block, size, admitted, history)
    if other is not None:
        text = f"{found}{w.id(other)} had sent the same {where}, but under another cache_salt or adapter, which never share."
        return Miss("other namespace", text, hit, prompt, block, shared_with=other)
    earlier = _common_prefix(run, req, history)
    if hit == 0 and 0 < earlier < size:
        text = f"{found}It shares only {earlier} tokens with an earlier request: less than one block of {size}."
        return Miss("below a block", text, hit, prompt, block)
    shared = f" The longest prefix it shares with an earlier request is {earlier:,} tokens." if earlier > hit else ""
    text = f"{found}Its {where} is new: no earlier request had the same {(block + 1) * size:,} first tokens.{shared}"
    return Miss("new content", text, hit, prompt, block)


def _since(run: Run, turn: int, req: int) -> str:
    then, now = float(run.steps["time"][turn]), float(run.requests["scheduled"][req])
    if run.workload.time_unit != "seconds":
        return f"at step {int(run.steps['schedule'][turn])}"
    return f"{max(now - then, 0.0):,.1f} s before"


def _other_namespace(run: Run, req: int, block: int, size: int, admitted: int, history: KeyHistory) -> int | None:
    """A request admitted earlier with another salt or adapter and the same first tokens."""
    w = run.workload
    if w.salt is None and w.lora is None:
        return None
    hash_block = run.resolved.hash_block_size
    count = (block + 1) * size // hash_block
    mine = chain_keys(w, req, hash_block, root=0)[count - 1]
    for other, row in history.admission.items():
        if row >= admitted or w.num_prompt[other] + w.num_output[other] < (block + 1) * size:
            continue
        if _namespace(run, other) != _namespace(run, req) and chain_keys(w, other, hash_block, root=0)[count - 1] == mine:
            return int(other)
    return None


def _namespace(run: Run, req: int) -> tuple[int, int]:
    w = run.workload
    return (int(w.salt[req]) if w.salt is not None else 0, int(w.lora[req]) if w.lora is not None else -1)


def _common_prefix(run: Run, req: int, history: KeyHistory) -> int:
    """Tokens shared with the best earlier request, by content pieces (not rounded to blocks)."""
    w, best = run.workload, 0
    mine = w.runs[w.first_run[req] : w.first_run[req + 1]]
    if len(mine) == 0 or mine["seed"][0] < 0:
        return 0
    before = history.admission[req]
    heads = w.runs[w.first_run[:-1]]
    alike = np.flatnonzero((heads["seed"] == mine["seed"][0]) & (heads["start"] == mine["start"][0]))
    for other in alike.tolist():
        if other == req or history.admission.get(other, before) >= before or _namespace(run, other) != _namespace(run, req):
            continue
        theirs = w.runs[w.first_run[other] : w.first_run[other + 1]]
        best = max(best, _equal_tokens(mine, theirs))
    return min(best, int(w.num_prompt[req]))


def _equal_tokens(a: npt.NDArray[np.void], b: npt.NDArray[np.void]) -> int:
    total = 0
    for x, y in zip(a.tolist(), b.tolist(), strict=False):
        if x[:2] != y[:2]:
            break
        total += min(x[2], y[2])
        if x[2] != y[2]:
            break
    return total
