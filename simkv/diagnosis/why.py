"""Why did this request miss? The first block that was not found, and what had become of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.diagnosis.keys import namespace, request_keys
from simkv.diagnosis.parted import parted
from simkv.engine.vllm.chain import chain_keys, group_key
from simkv.events import layout as ev
from simkv.events.log import EventLog
from simkv.replay import Run
from simkv.workload.workload import Workload

_LOOK_BACK = 4096
_ROW_BITS = 32
_ROW = (1 << _ROW_BITS) - 1


@dataclass(frozen=True, slots=True)
class Miss:
    """The answer for one request's first admission.

    Args:
        kind: ``nothing to miss``, ``new content``, ``evicted``, ``cleared``, ``below a block``, ``other namespace``,
            ``not stored``, ``caching off``, ``not read``, ``never admitted``, ``not known`` (no event log).
        sentence: the answer in words.
        hit_tokens, prompt_tokens: of the first admission.
        first_missing_block: logical index of the first block that was not found.
        evicted_step, evicted_for: turn and request whose allocation took the block away.
        stored_by: request that had stored it.
        shared_with: request in another namespace (salt or adapter) that had stored the same content.
        cause: of new content that is old in parts: why it parted (simkv/diagnosis/parted.py).
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
    cause: str | None = None


class KeyHistory:
    """Where each key entered and left the cache; built once for a log, asked for many requests.

    Args:
        only: the keys it will be asked for; a history of a few is made much faster than that of all.
    """

    def __init__(self, log: EventLog, only: npt.NDArray[np.uint64] | None = None) -> None:
        kind = log.events["kind"] & ev.KIND_MASK
        self.log = log
        keyed = np.flatnonzero((kind == ev.STORED) | (kind == ev.STORED_EXTRA) | (kind == ev.HOST_STORED))
        device = kind[keyed] != ev.HOST_STORED
        self._stored, keys = keyed[device], np.asarray(log.keys)[: len(keyed)][device]
        gone = np.flatnonzero((kind == ev.RECYCLED) | (kind == ev.EVICTED))
        if only is not None:
            wanted = _among(keys, np.unique(only))
            self._stored, keys = self._stored[wanted], keys[wanted]
            gone = gone[_among(log.events["arg"][gone], np.unique(log.events["arg"][self._stored]))]
        self._order = np.argsort(keys)  # rows of one key come in any order; ``stores`` sorts the few it is asked for
        self._sorted = keys[self._order]
        self._cleared = np.flatnonzero(kind == ev.CLEARED)
        self._gone = np.sort(self._place(log.events["arg"][gone], gone))
        self._firsts = np.append(log.steps["first_event"], len(log.events))
        admitted = np.flatnonzero(kind == ev.ADMITTED)
        owner = log.events["req"]
        self.admission = {int(owner[row]): _begin(owner, int(row)) for row in admitted}
        """Request -> first row of its admission (hits, blocks and keys of an admission stand before ADMITTED)."""

    def stores(self, key: int, before: int) -> npt.NDArray[np.int64]:
        """Rows before row ``before`` that stored the key, ascending."""
        low, high = np.searchsorted(self._sorted, np.uint64(key)), np.searchsorted(self._sorted, np.uint64(key), side="right")
        rows = np.sort(self._stored[self._order[low:high]])
        return rows[rows < before]

    def removal(self, stored: int, before: int) -> int | None:
        """Row that took the block stored at row ``stored`` out of the cache, before row ``before``."""
        block = self.log.events["arg"][stored]
        at = np.searchsorted(self._gone, self._place(block, stored))
        evicted = self._gone[at] & _ROW if at < len(self._gone) and self._gone[at] >> _ROW_BITS == block else before
        at = np.searchsorted(self._cleared, stored)
        cleared = self._cleared[at] if at < len(self._cleared) else before
        first = min(int(evicted), int(cleared))
        return first if first < before else None

    @staticmethod
    def _place(block: Any, row: Any) -> Any:
        """Block and row as one number, so that the next row of a block is found by bisection."""
        return np.asarray(block, np.int64) << _ROW_BITS | row

    def turn(self, row: int) -> int:
        """Turn in which a row was written."""
        return int(np.searchsorted(self._firsts, row, side="right") - 1)


def _among(values: npt.NDArray[Any], some: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which values are among ``some``, which is sorted."""
    if not len(some):
        return np.zeros(len(values), np.bool_)
    found: npt.NDArray[np.bool_] = some[np.minimum(np.searchsorted(some, values), len(some) - 1)] == values
    return found


def _begin(owner: npt.NDArray[np.int32], row: int) -> int:
    """The first of the rows of one request that follow each other and end with ``row``."""
    end = row
    while end:
        start = max(0, end - _LOOK_BACK)
        others = np.flatnonzero(owner[start:end] != owner[row])
        if len(others):
            return start + int(others[-1]) + 1
        end = start
    return 0


def why_missed(run: Run, req: int, history: KeyHistory | None = None) -> Miss:
    """Explain the first admission of request ``req``. Needs the run's event log.

    For hybrid models the answer is about the first full-attention group (the first group if there is none): its blocks
    are the ones every hit needs from the first token on.
    """
    w, s, log = run.workload, run.resolved, run.log
    prompt, hit = int(w.num_prompt[req]), int(run.requests["hit"][req])
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
    return _first_missing(run, log, req, hit, history or KeyHistory(log))


def _first_missing(run: Run, log: EventLog, req: int, hit: int, history: KeyHistory) -> Miss:
    w, s, name, prompt = run.workload, run.resolved, run.workload.id(req), int(run.workload.num_prompt[req])
    group = next((g for g, x in enumerate(s.groups) if x.type == "full"), 0)
    size = s.groups[group].block_size or s.block_size
    block = hit // size
    count = (block + 1) * size // s.hash_block_size
    mine = request_keys(run, req, count)
    admitted = history.admission[req]
    stores = history.stores(int(mine[-1]) ^ group_key(group), admitted)
    where = f"block {block} (tokens {block * size:,} to {(block + 1) * size - 1:,})"
    found = f"{name} found {hit:,} of {prompt:,} tokens. "
    if len(stores):
        gone = [(history.removal(int(row), admitted), int(row)) for row in stores]
        lost = [(out, row) for out, row in gone if out is not None]
        if len(lost) == len(gone):
            out, row = max(lost)
            taker, writer, turn = int(log.events["req"][out]), int(log.events["req"][row]), history.turn(out)
            ago = _since(run, turn, req)
            if int(log.events["kind"][out]) & ev.KIND_MASK == ev.CLEARED:
                text = f"{found}Its {where} was cached by {w.id(writer)}, but reset_prefix_cache cleared it {ago}."
                return Miss("cleared", text, hit, prompt, block, turn, None, writer)
            text = f"{found}Its {where} was cached by {w.id(writer)}, but evicted {ago} to make room for {w.id(taker)}."
            return Miss("evicted", text, hit, prompt, block, turn, taker, writer)
        text = f"{found}Its {where} is cached, but no resume point that every layer group agrees on lies behind it."
        return Miss("not stored", text, hit, prompt, block, stored_by=int(log.events["req"][stores[0]]))
    same, other = _same_content(run, req, count, (block + 1) * size, history)
    if same is not None:
        reason = "a sliding window keeps only blocks it can resume on" if s.groups[group].type == "sliding" else "had not computed it yet"
        whose = "" if s.groups[group].type == "sliding" else f"{w.id(same)} "
        text = f"{found}{w.id(same)} had sent the same {where}, but it was not in the cache: {whose}{reason}."
        return Miss("not stored", text, hit, prompt, block)
    if other is not None:
        text = f"{found}{w.id(other)} had sent the same {where}, but under another cache_salt or adapter, which never share."
        return Miss("other namespace", text, hit, prompt, block, shared_with=other)
    earlier, like = _common_prefix(run, req, history)
    if hit == 0 and 0 < earlier < size:
        text = f"{found}It shares only {earlier} tokens with an earlier request: less than one block of {size}."
        return Miss("below a block", text, hit, prompt, block)
    shared = f" The longest prefix it shares with an earlier request is {earlier:,} tokens." if earlier > hit else ""
    text = f"{found}Its {where} is new: no earlier request had the same {(block + 1) * size:,} first tokens.{shared}"
    why = parted(w, req, like, earlier) if like is not None else None
    if why is not None:
        return Miss("new content", f"{text} {why.sentence}", hit, prompt, block, cause=why.cause)
    return Miss("new content", text, hit, prompt, block)


def _since(run: Run, turn: int, req: int) -> str:
    then, now = float(run.steps["time"][turn]), float(run.requests["scheduled"][req])
    if run.workload.time_unit != "seconds":
        return f"at step {int(run.steps['schedule'][turn])}"
    return f"{max(now - then, 0.0):,.1f} s before"


def _same_content(run: Run, req: int, count: int, tokens: int, history: KeyHistory) -> tuple[int | None, int | None]:
    """Requests admitted earlier with the same first ``tokens`` tokens: one in the same namespace, one in another."""
    w, hash_block = run.workload, run.resolved.hash_block_size
    key = chain_keys(w, req, hash_block, root=0, upto=count)[-1]
    same = other = None
    for i in _alike(run, req, history):
        if w.num_prompt[i] + w.num_output[i] < tokens or chain_keys(w, i, hash_block, root=0, upto=count)[-1] != key:
            continue
        if namespace(run, i) != namespace(run, req):
            other = i
        elif w.num_prompt[i] >= tokens:
            same = i
    return same, other


def _alike(run: Run, req: int, history: KeyHistory) -> list[int]:
    """Requests admitted before ``req`` that start with the same token, in order of the workload."""
    w = run.workload
    heads = w.runs[w.first_run[:-1]]
    explicit = heads["seed"] < 0
    start = np.where(explicit, 0, heads["start"].astype(np.int64))
    start[explicit] = w.tokens[-1 - heads["seed"][explicit] + heads["start"][explicit]]
    first = np.where(explicit, -1, heads["seed"])
    before = history.admission[req]
    alike = np.flatnonzero((first == first[req]) & (start == start[req])).tolist()
    return [i for i in alike if history.admission.get(i, before) < before]


def _common_prefix(run: Run, req: int, history: KeyHistory) -> tuple[int, int | None]:
    """Tokens shared with the best earlier request of the same namespace, by content pieces (not rounded to blocks), and which it is.

    The latest of several; where none begins alike, the one admitted last.
    """
    w, best, like = run.workload, 0, None
    mine = w.runs[w.first_run[req] : w.first_run[req + 1]]
    for i in _alike(run, req, history):
        if namespace(run, i) == namespace(run, req):
            equal = _equal_tokens(w, mine, w.runs[w.first_run[i] : w.first_run[i + 1]])
            if equal >= best:
                best, like = equal, i
    if like is None:
        before = history.admission[req]
        rows = ((row, i) for i, row in history.admission.items() if row < before and namespace(run, i) == namespace(run, req))
        like = max(rows, default=(0, None))[1]
    return min(best, int(w.num_prompt[req])), like


def _equal_tokens(w: Workload, a: npt.NDArray[np.void], b: npt.NDArray[np.void]) -> int:
    total = 0
    for (seed, start, n), (seed_b, start_b, n_b) in zip(a.tolist(), b.tolist(), strict=False):
        most = min(n, n_b)
        if seed < 0 and seed_b < 0:
            at, at_b = -1 - seed + start, -1 - seed_b + start_b
            different = np.flatnonzero(w.tokens[at : at + most] != w.tokens[at_b : at_b + most])
            if len(different):
                return total + int(different[0])
        elif (seed, start) != (seed_b, start_b):
            break
        total += most
        if n != n_b:
            break
    return total
