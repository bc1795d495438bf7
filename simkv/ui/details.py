"""Everything about one block at one moment, and the head of the free queue: who dies next."""

from __future__ import annotations

import numpy as np

from simkv.diagnosis.keys import request_keys
from simkv.engine.vllm.chain import group_key
from simkv.events.digests import request_digests
from simkv.events.folds.pool import PoolState
from simkv.ui import text
from simkv.ui.facts.component import Fact
from simkv.ui.shown import Shown

MAX_OWNERS = 5


def state_name(state: PoolState, block: int) -> str:
    """The block's state in words, as in the map's legend."""
    if block == 0:
        return "null block: a placeholder, never given out"
    refs = int(state.ref[block])
    if refs > 1:
        return f"shared by {refs} requests"
    if refs == 1:
        return "in use"
    return "cached, evictable" if state.key[block] else "free, nothing cached"


def block_facts(shown: Shown, state: PoolState, block: int, with_digest: bool = False) -> list[Fact]:
    """State, ref_cnt, hash, parent, content, owners and place in the free queue of a block.

    Args:
        with_digest: also the engine's own digest, computed now from the tokens.
    """
    facts = [Fact("state", state_name(state, block))]
    if block == 0:
        return facts
    facts.append(Fact("ref_cnt", str(int(state.ref[block])), hint="how many requests hold the block now"))
    reserved = shown.run.resolved.engine == "contiguous"
    facts += [_written(state, block)] if reserved else _content(shown, state, block, with_digest)
    facts += owner_facts(shown, state, block)
    if not reserved:
        facts.append(queue_fact(state, block))
    since = idle(shown, state, block)
    if since:
        facts.append(Fact("unchanged", since, hint="since the block was last taken, hit, stored or released"))
    return facts


def _written(state: PoolState, block: int) -> Fact:
    """Whether a cell of a reservation holds token states yet."""
    if not state.ref[block]:
        return Fact("holds", "nothing", hint="contiguous memory keeps nothing of a request that has ended")
    return Fact("holds", "token states" if state.key[block] else "nothing yet: reserved", hint="the whole piece is taken at admission")


def _content(shown: Shown, state: PoolState, block: int, with_digest: bool) -> list[Fact]:
    if not state.key[block]:
        if shown.run.resolved.engine == "sglang":
            return [Fact("content", "none of the radix tree", hint="tokens enter the tree when their chunk or their request is done")]
        return [Fact("hash", "none: only full blocks are hashed", hint="block_hash is None until the block is full")]
    writer, position = int(state.writer[block]), int(state.position[block])
    facts = [Fact("hash", text.key_hex(int(state.key[block])), hint="64-bit key of the chain: parent, tokens, extra keys")]
    if with_digest and writer >= 0 and shown.run.resolved.engine == "vllm":
        facts.append(
            Fact("digest", digest(shown, writer, position), hint=f"block_hash as the engine computes it ({shown.run.resolved.hash_algo})")
        )
    if position == 0:
        facts.append(Fact("parent", "none: first block of a prompt"))
    else:
        parent = parent_of(shown, state, block)
        label = "not in the cache" if parent is None else f"block {parent:,}"
        facts.append(Fact("parent", label, block=parent, hint="the block before it in the hash chain"))
    if writer >= 0:
        facts.append(
            Fact(
                "tokens",
                f"{token_range(shown, state, block)} of {shown.run.workload.id(writer)}",
                request=writer,
                hint="the request that computed it",
            )
        )
    return facts


def token_range(shown: Shown, state: PoolState, block: int) -> str:
    """Which tokens of its writer's prompt and output the block holds."""
    size = group_block_size(shown, int(state.group[block]))
    position = int(state.position[block])
    return f"{position * size:,}–{(position + 1) * size - 1:,}"


def group_block_size(shown: Shown, group: int) -> int:
    """Tokens per block of a KV group."""
    groups = shown.run.resolved.groups
    return int((groups[group].block_size if group < len(groups) else None) or shown.run.resolved.block_size)


def owner_facts(shown: Shown, state: PoolState, block: int) -> list[Fact]:
    """Who holds the block: one row a request, the first few of them."""
    owners = [int(r) for r in state.owners(block)]
    if not owners:
        return []
    label = "shared by" if len(owners) > 1 else "held by"
    rows = [Fact(label if i == 0 else "", shown.run.workload.id(r), request=r) for i, r in enumerate(owners[:MAX_OWNERS])]
    if len(owners) > MAX_OWNERS:
        rows.append(Fact("", f"and {len(owners) - MAX_OWNERS:,} more"))
    return rows


def queue_fact(state: PoolState, block: int) -> Fact:
    """The block's place in the free queue and how many allocations it has left."""
    if state.ref[block] > 0:
        return Fact("queue", "not in the free queue: a request holds it", hint="it cannot be evicted now")
    queue = state.free_queue()
    at = np.flatnonzero(queue == block)
    if not len(at):
        return Fact("queue", "not in the free list: cached in the radix tree", hint="evicted when its leaf is the policy's next victim")
    before = int(at[0])
    verb = "dies" if state.key[block] else "taken"
    dies = "next to be taken" if before == 0 else f"{verb} after {text.counted(before, 'more allocation')}"
    return Fact(
        "queue", f"{before + 1:,} of {len(queue):,}; {dies}", hint="1 is the head, the next victim; a hit takes the block out of the queue"
    )


def idle(shown: Shown, state: PoolState, block: int) -> str:
    """How long the block has not changed, in words; empty if it never did."""
    since = int(state.since[block])
    if since < 0 or not len(shown.run.steps):
        return ""
    if shown.time_unit != "seconds":
        return text.counted(state.step - since, "step")
    time = shown.run.steps["time"]
    return text.seconds(float(time[state.step] - time[since]))


def parent_of(shown: Shown, state: PoolState, block: int) -> int | None:
    """The block before this one in its chain, as it lies in the pool now; ``None`` if it cannot be told."""
    writer, position, group = int(state.writer[block]), int(state.position[block]), int(state.group[block])
    if writer < 0 or position <= 0:
        return None
    hashed = shown.run.resolved.hash_block_size
    keys = request_keys(shown.run, writer)
    before = position * group_block_size(shown, group) // hashed - 1
    if before >= len(keys):
        return None
    same = np.flatnonzero((state.key == keys[before] ^ np.uint64(group_key(group))) & (state.group == group))
    return int(same[0]) if len(same) else None


def digest(shown: Shown, writer: int, position: int) -> str:
    """The engine's own digest of the block's content, in hexadecimal."""
    r = shown.run.resolved
    found = request_digests(
        shown.run.workload,
        writer,
        r.hash_block_size,
        r.hash_algo,
        position + 1,
        tagged=r.profile.tagged_extra_keys,
        lora_path=r.profile.lora_path_in_key,
    )
    return found[position].hex() if position < len(found) else text.NO_DATA


def next_victims(shown: Shown, state: PoolState, most: int = 6) -> list[Fact]:
    """The head of the free queue, neighbours of the same request told together: what dies next and how long it has been idle.

    Args:
        most: rows returned.
    """
    queue = state.free_queue()
    writer = np.where(state.key[queue] != 0, state.writer[queue], -1)
    cuts = np.flatnonzero((np.diff(writer) != 0) | (np.diff(state.since[queue]) != 0)) + 1
    if not len(queue):
        return []
    starts, ends = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(queue)]])
    rows = []
    for a, b in zip(starts[:most].tolist(), ends[:most].tolist(), strict=True):
        place = f"{a + 1:,}" if b - a == 1 else f"{a + 1:,}–{b:,}"
        rows.append(
            Fact(
                place,
                victim(shown, state, int(queue[a]), b - a),
                block=int(queue[a]),
                hint="place in the free queue; select the first block",
            )
        )
    return rows


def victim(shown: Shown, state: PoolState, block: int, count: int) -> str:
    """What dies with ``count`` neighbours in the queue that start with ``block``, in words."""
    if not state.key[block]:
        return f"block {block:,}, nothing cached" if count == 1 else f"{count:,} blocks, nothing cached"
    writer = int(state.writer[block])
    whose = shown.run.workload.id(writer) if writer >= 0 else "an unknown request"
    what = f"block {block:,}" if count == 1 else f"{count:,} blocks"
    waited = idle(shown, state, block)
    return f"{what} of {whose}" + (f", idle {waited}" if waited else "")
