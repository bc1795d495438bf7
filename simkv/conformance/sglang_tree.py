"""An SGLang replica's tree, sizes and evictions as the recorded logs write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simkv.engine.sglang.layout import ROOT

Names = list[tuple[str | None, str | None]]
"""``(extra_key, cache_salt)`` of each namespace number."""


def sizes(cfg: Any, c: Any) -> dict[str, int]:
    """Tokens in the tree, and in the free list."""
    page = int(cfg.page)
    return {
        "total": int(c.cached) * page,
        "evictable": int(c.evictable) * page,
        "protected": int(c.protected) * page,
        "available": int(c.free_len) * page,
        "capacity": int(cfg.capacity),
    }


def slots_of(pages: Any, page: int) -> list[int]:
    """Token slots of page ids."""
    out: list[int] = (np.asarray(pages, np.int64)[:, None] * page + np.arange(page)).reshape(-1).tolist()
    return out


def tokens_at(e: Any, run: int, at: int, n: int) -> list[int]:
    """``n`` token ids from a position on; recorded content is written out."""
    out: list[int] = []
    while n > 0:
        piece = e.runs[run]
        first, m = -1 - int(piece.seed) + int(piece.start) + at, min(int(piece.n) - at, n)
        out += e.tokens[first : first + m].tolist()
        run, at, n = run + 1, 0, n - m
    return out


def evicted_nodes(e: Any, page: int, count: int) -> list[dict[str, Any]]:
    """The nodes evicted in this step, in order."""
    out = []
    for v in e.victims[:count]:
        n, pages = int(v.pages) * page, e.evicted[v.first : v.first + v.pages]
        tokens = tokens_at(e, int(v.run), int(v.at), n)
        out.append({"n": n, "start": int(v.depth) * page, "tokens": tokens, "slots": slots_of(pages, page)})
    return out


def tree(e: Any, cfg: Any, c: Any, names: Names) -> list[dict[str, Any]]:
    """Every node but the root, depth first in order of insertion."""
    nodes, page, arena = e.nodes, int(cfg.page), e.arena[int(c.arena_half)]
    order: list[int] = []
    stack = [ROOT]
    while stack:
        n = stack.pop()
        order.append(n)
        children = []
        x = int(nodes[n].first)
        while x:
            children.append(x)
            x = int(nodes[x].next)
        stack += reversed(children)
    number = {n: i for i, n in enumerate(order)}
    rank = {n: i for i, n in enumerate(sorted(order[1:], key=lambda n: int(nodes[n].stamp)))}
    out = []
    for n in order[1:]:
        node = nodes[n]
        length = int(node.pages) * page
        row = {
            "id": number[n],
            "parent": number[int(node.parent)],
            "start": int(node.depth) * page,
            "len": length,
            "tokens": tokens_at(e, int(node.run), int(node.at), length),
            "slots": slots_of(arena[node.slots : node.slots + node.pages], page),
            "lock_ref": int(node.lock),
            "hit_count": int(node.hits),
            "priority": int(node.priority),
            "lru_rank": rank[n],
            "children": int(node.children),
        }
        extra, salt = names[int(node.namespace)]
        if extra is not None:
            row["extra_key"] = extra
        if salt:
            row["cache_salt"] = salt
        out.append(row)
    return out


def compare_tree(equal: Callable[..., bool], at: int | None, field: str, recorded: dict[str, Any], mine: list[dict[str, Any]]) -> None:
    """A recorded tree against ours. Of SGLang's compiled tree only ``[slot, position]`` of every cached token was recorded."""
    if "rust_slots" in recorded:
        places = sorted([slot, node["start"] + i] for node in mine for i, slot in enumerate(node["slots"]))
        equal(at, f"{field} slots", recorded["rust_slots"], places)
    else:
        equal(at, field, recorded["nodes"], mine)
