"""Cache operations without a scheduler: match, insert, lock, unlock, evict, reset, one after another in one compiled call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from simkv.engine.sglang.actions import clear_tree
from simkv.engine.sglang.compiled import entry, kernel
from simkv.engine.sglang.config import SglangConfig
from simkv.engine.sglang.evict import evict_tokens
from simkv.engine.sglang.integrity import check_integrity
from simkv.engine.sglang.layout import EVICT, INSERT, LOCK, MATCH, NONE, OPERATION, UNLOCK
from simkv.engine.sglang.pages import available, take_pages
from simkv.engine.sglang.state import build, namespaces
from simkv.engine.sglang.tree import insert, lock, match, unlock
from simkv.engine.step_time import step_index
from simkv.workload.workload import Workload


@kernel
def insert_content(e, cfg, c, op):  # type: ignore[no-untyped-def]
    """Match, lock what was found, evict for the rest, allocate, insert, unlock: as a request does it. Returns the last node."""
    run, namespace = np.int64(op.first_run), np.int64(op.namespace)
    pages = op.tokens // cfg.page
    found, node = match(e, cfg, c, run, namespace, pages)
    op.matched = found * cfg.page
    lock(e, cfg, c, node)
    need = pages - found
    missing = (need - c.free_len) * cfg.page
    if missing > 0:
        evict_tokens(e, cfg, c, missing)
    if need * cfg.page > available(cfg, c):
        op.failed = 1
        unlock(e, cfg, c, node)
        return NONE
    row = e.rows[0]
    take_pages(e, cfg, c, NONE, row, found, need)
    op.new = need * cfg.page
    _, last = insert(e, cfg, c, NONE, run, namespace, pages, row, found, 0, np.int64(op.priority))
    unlock(e, cfg, c, node)
    return last


@entry
def perform(e, cfg, c, operations, first, last, found, locked):  # type: ignore[no-untyped-def]
    """Perform ``operations[first:last]``. ``found`` and ``locked``: the last node and the locked node of each name."""
    for i in range(first, last):
        op = operations[i]
        name = np.int64(op.name)
        if op.kind == MATCH:
            pages, node = match(e, cfg, c, np.int64(op.first_run), np.int64(op.namespace), op.tokens // cfg.page)
            op.matched = pages * cfg.page
            found[name] = node
        elif op.kind == INSERT:
            node = insert_content(e, cfg, c, op)
            if node >= 0:
                found[name] = node
        elif op.kind == LOCK:
            lock(e, cfg, c, np.int64(found[name]))
            locked[name] = found[name]
        elif op.kind == UNLOCK:
            unlock(e, cfg, c, np.int64(locked[name]))
            locked[name] = NONE
        elif op.kind == EVICT:
            op.got = evict_tokens(e, cfg, c, op.n)
        else:
            clear_tree(e, cfg, c)
        op.victims = c.victims
        c.victims = 0
        c.evicted = 0


class SglangCache:
    """SGLang's radix cache and allocator alone.

    Args:
        contents: one request for each operation that has tokens; its prompt is the content.
        config: page size, pool and eviction policy; the rest is not used.
        operations: ``OPERATION[m]``; ``first_run`` and ``namespace`` are filled in from ``content_of``.
        content_of: which request of ``contents`` an operation is about, -1 for none, shape ``[m]``.
        names: how many names the operations use.
    """

    def __init__(
        self,
        contents: Workload,
        config: SglangConfig,
        operations: npt.NDArray[np.void],
        content_of: npt.NDArray[np.int64],
        names: int,
    ) -> None:
        self.contents, self.operations = contents, operations.view(np.recarray)
        self.config, self.counters, self.state = build(contents, config, step_index().record(), False, None)
        self.names = namespaces(contents)[1]
        has = content_of >= 0
        for name in ("first_run", "namespace"):
            self.operations[name][has] = self.state.reqs[name][content_of[has]]
        self.operations["tokens"][has] = contents.num_prompt[content_of[has]]
        self.found, self.locked = np.zeros(names + 1, np.int64), np.full(names + 1, NONE, np.int64)

    def run(self, first: int, last: int) -> None:
        """Perform operations ``first … last-1``; what came of each stands in ``operations``."""
        perform(self.state, self.config, self.counters, self.operations, first, last, self.found, self.locked)

    def check_integrity(self) -> None:
        """Raise AssertionError if tree and pool contradict each other."""
        check_integrity(self.state, self.config, self.counters, self.locked[self.locked >= 0].tolist())


def operation_table(kinds: Sequence[int]) -> npt.NDArray[np.void]:
    """``OPERATION[m]`` of these kinds, all else 0."""
    out = np.zeros(len(kinds), OPERATION)
    out["kind"] = kinds
    return out
