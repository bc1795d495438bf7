"""How many bytes of KV cache one token takes, and how layers form groups that share one pool."""

from __future__ import annotations

from simkv.errors import SettingsError
from simkv.hardware.models import FULL, SLIDING, Model, find_model
from simkv.settings import KVGroup


def element_bytes(kv_cache_dtype: str) -> int:
    """Bytes per number: 1 for fp8, else 2 (``auto`` is the dtype the model computes in, also for fp8 checkpoints).

    Scales of fp8 caches are per tensor and take nothing worth counting.
    """
    return 1 if kv_cache_dtype.startswith("fp8") else 2


def kv_heads_per_rank(model: Model, tp: int) -> int:
    """KV heads each GPU of a tensor-parallel replica keeps: at least one, so with fewer heads than GPUs they are replicated.

    Raises:
        SettingsError: ``tp`` does not divide the attention heads, or neither divides nor is a multiple of the KV heads
            (vLLM refuses both).
    """
    if model.attention_heads % tp:
        fitting = ", ".join(str(t) for t in range(1, 65) if model.attention_heads % t == 0)
        raise SettingsError(
            "tensor_parallel_size", tp, f"{fitting}: divisors of the {model.attention_heads} attention heads of {model.name}"
        )
    if model.mla:
        return 1
    if model.kv_heads % tp and tp % model.kv_heads:
        raise SettingsError("tensor_parallel_size", tp, f"a divisor or a multiple of the {model.kv_heads} KV heads of {model.name}")
    return max(1, model.kv_heads // tp)


def layer_bytes_per_token(model: Model, kv_cache_dtype: str = "auto", tp: int = 1) -> int:
    """Bytes one layer keeps per token on each GPU. MLA's latent vector is whole on every GPU."""
    heads = kv_heads_per_rank(model, tp)
    elements = model.kv_elements if model.mla else model.kv_elements // model.kv_heads * heads
    return elements * element_bytes(kv_cache_dtype)


def kv_bytes_per_token(model: Model | str, kv_cache_dtype: str = "auto", tp: int = 1, *, layers: str = "all") -> int:
    """KV bytes per token on each GPU of the replica.

    Args:
        layers: ``all`` layers that keep KV (how a pool without groups is sized), ``full`` attention layers only (what
            keeps growing with the context), or ``sliding``.
    """
    m = find_model(model) if isinstance(model, str) else model
    counts = {"all": m.kv_layers, "full": m.layers_of(FULL), "sliding": m.layers_of(SLIDING)}
    if layers not in counts:
        raise SettingsError("layers", layers, "all, full or sliding")
    return counts[layers] * layer_bytes_per_token(m, kv_cache_dtype, tp)


def groups_of(model: Model | str) -> tuple[KVGroup, ...]:
    """The KV groups vLLM forms for a model: layers of one kind are dealt into groups of equal size.

    The size is the smallest kind's layer count (the largest's, if that is less than a quarter more); a kind's last
    groups may be padded. Gemma-3-27B (52 sliding, 10 full) becomes six sliding groups and one full group.

    Raises:
        SettingsError: the model has layers simkv does not model (linear or chunked attention).
    """
    m = find_model(model) if isinstance(model, str) else model
    other = [k for k, _ in m.layer_kinds if k not in (FULL, SLIDING)]
    if other:
        hint = f"{m.name} has {other[0]}-attention layers, which are not modelled"
        raise SettingsError("hybrid", "model", "groups of full and sliding layers", hint)
    counts = [n for _, n in m.layer_kinds]
    size = max(counts) if max(counts) < 1.25 * min(counts) else min(counts)
    groups = []
    for kind, n in m.layer_kinds:
        parts = -(-n // size)
        for part in range(parts):
            groups.append(KVGroup(kind, m.window if kind == SLIDING else None, layers=len(range(part, n, parts))))
    return tuple(groups)


def blocks_for(groups: tuple[KVGroup, ...], tokens: int, in_flight: int) -> int:
    """Blocks one request of ``tokens`` tokens can come to hold (what vLLM's start-up check and concurrency line count).

    A full group holds every token. A sliding group never holds more than its window plus the tokens of the steps in
    flight, and one block more because a window rarely begins at a block's edge.

    Args:
        groups: KV groups with block sizes filled in.
        in_flight: max_num_batched_tokens, twice that with asynchronous scheduling.
    """
    total = 0
    for g in groups:
        size = g.block_size or 1
        if g.type == SLIDING and g.window is not None:
            total += -(-min(g.window - 1 + in_flight, tokens) // size) + 1
        else:
            total += -(-tokens // size)
    return total


def longest_request(groups: tuple[KVGroup, ...], blocks: int, in_flight: int, limit: int) -> int:
    """The longest request, at most ``limit`` tokens, that fits in ``blocks`` blocks; 0 if none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if blocks_for(groups, middle, in_flight) <= blocks else (low, middle - 1)
    return low
