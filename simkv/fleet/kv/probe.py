"""How much of a prompt replicas' caches hold, read from their own tables and left as it was."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simkv.engine.sglang.content import advance_by, common_tokens
from simkv.engine.sglang.layout import NODE, ROOT
from simkv.engine.sglang.links import child_key, find_child
from simkv.engine.vllm.layout import BLOCK
from simkv.engine.vllm.lookup import cached_block, find_hit
from simkv.fleet.kv.address import array_at
from simkv.fleet.kv.compiled import entry, kernel
from simkv.fleet.kv.request_keys import Keys, need_keys
from simkv.jit import record

WORD = np.dtype(np.uint64)
NOTHING, CHAIN, TREE = range(3)
SOURCE = record(
    ("key", "u8"),  # of the KV group (vLLM)
    ("kind", "i8"),  # NOTHING: caches nothing; CHAIN: a vLLM replica with one full group; TREE: an SGLang replica
    ("page", "i8"),  # tokens per block or page
    ("stride", "i8"),  # keys per block
    ("granularity", "i8"),  # hits are a multiple of so many tokens
    ("table", "i8"),  # address and words of the hash table
    ("table_size", "i8"),
    ("entries", "i8"),  # address and number of the blocks or nodes
    ("num_entries", "i8"),
)
"""Where a replica's cache lies."""


class Tree(NamedTuple):
    """Of an SGLang replica, what finding a child needs."""

    nodes: Any
    table: Any
    runs: Any
    tokens: Any


@kernel
def holds(blocks, table, source, k, req, n):
    """Whether a vLLM replica has the prompt's ``n``-th block, counted from 1."""
    need_keys(k, req, n * source.stride)
    return cached_block(blocks, table, k.keys[n * source.stride - 1] ^ source.key) != 0


@kernel
def cached_blocks(blocks, table, source, k, req, most, guess):
    """Leading blocks the table holds, at most ``most``.

    A cached block's predecessors are cached (release() frees a table from its end, so the end is evicted first). So their
    number is found by steps that double from a guess on, then by halves.
    """
    known, unknown, step = 0, most + 1, 1
    probe = min(max(guess, 1), most)
    while known < most and unknown > most:
        if holds(blocks, table, source, k, req, probe):
            known = probe
        else:
            unknown = probe
        probe = min(known + step, most)
        step *= 2
    while unknown - known > 1:
        probe = (known + unknown) >> 1
        if holds(blocks, table, source, k, req, probe):
            known = probe
        else:
            unknown = probe
    return known


@kernel
def cached_pages(e, source, run, namespace, most):
    """Leading pages the radix tree holds, at most ``most``: ``match`` of engine/sglang/tree.py without its splits and stamps."""
    n, done, at = np.int64(ROOT), 0, np.int64(0)
    while done < most:
        child = find_child(e.nodes, e.table, child_key(e, source, n, namespace, run, at))
        if child == 0:
            break
        edge = e.nodes[child]
        pages = np.int64(edge.pages)
        upto = min(pages, most - done)
        same = common_tokens(e.runs, e.tokens, np.int64(edge.run), np.int64(edge.at), run, at, upto * source.page) // source.page
        done += same
        if same < pages:
            break
        n = child
        run, at = advance_by(e.runs, run, at, same * source.page)
    return done


@entry
def probe_caches(reqs, runs, tokens, images, cursor, keys, sources, which, req, namespace, out):
    """Cached tokens of a prompt for each of ``sources[which]`` into ``out[which]``. The last token is always computed anew.

    All of ``which`` have the same keys. Replicas often hold equally much, so each is asked for what the one before had.
    """
    k = Keys(reqs, runs, tokens, images, cursor, keys)
    x = reqs[req]
    guess = 1
    for i in range(which.size):
        w = which[i]
        source = sources[w]
        out[w] = 0
        most = (x.num_prompt - 1) // max(source.page, 1)
        if source.kind == CHAIN:
            blocks = array_at(source.entries, source.num_entries, BLOCK)
            found = cached_blocks(blocks, array_at(source.table, source.table_size, WORD), source, k, req, most, guess)
            guess = found
            out[w] = found * source.page // source.granularity * source.granularity
        elif source.kind == TREE:
            nodes = array_at(source.entries, source.num_entries, NODE)
            tree = Tree(nodes, array_at(source.table, source.table_size, WORD), k.runs, k.tokens)
            out[w] = cached_pages(tree, source, np.int64(x.first_run), namespace, most) * source.page


@entry
def find_hit_in(e, cfg, c, num_prompt):
    """``find_hit`` of engine/vllm/lookup.py for a request whose keys lie in row 0 of ``e.keys``."""
    return find_hit(e, cfg, c, 0, num_prompt)
