"""Models: what of a model's shape decides about memory and time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from simkv.hardware.tables import find, rows, whole

FULL, SLIDING, CHUNKED, LINEAR = "full", "sliding", "chunked", "linear"
_KINDS = {"full_attention": FULL, "full_attention(NoPE)": FULL, "sliding_attention": SLIDING, "linear_attention": LINEAR}


@dataclass(frozen=True, slots=True)
class Model:
    """One row of models.csv. Bytes are bytes, counts are counts.

    Args:
        kv_layers: layers that keep keys and values per token (linear-attention layers do not).
        kv_heads: key/value heads; 1 for multi-head latent attention (MLA), whose latent vector is shared by all heads.
        head_dim: size of one head; for MLA latent rank plus rotary part.
        kv_elements: numbers kept per token and layer, both K and V, over all heads.
        window: tokens a sliding (or chunked) layer attends to.
        layer_kinds: (kind, layers) in order of first appearance in the model; kinds full, sliding, chunked, linear.
        weight_bytes: size of the checkpoint as served.
        weight_basis: where that size comes from.
    """

    name: str
    model_type: str
    layers: int
    kv_layers: int
    hidden: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    mla_rank: int | None
    mla_rope_dim: int | None
    kv_elements: int
    window: int | None
    layer_kinds: tuple[tuple[str, int], ...]
    params_total: int
    params_active: int
    embed_params: int
    tied: bool
    vocab: int
    max_position: int
    checkpoint_dtype: str
    weight_bytes: int
    weight_basis: str
    source: str

    @property
    def mla(self) -> bool:
        """Whether the cache holds one latent vector per token instead of keys and values per head."""
        return self.mla_rank is not None

    def layers_of(self, kind: str) -> int:
        """Layers of one kind."""
        return sum(n for k, n in self.layer_kinds if k == kind)

    @property
    def hybrid(self) -> bool:
        """Whether layers differ in what they keep, so that one full group describes the model badly."""
        return len(self.layer_kinds) > 1 or self.layer_kinds[0][0] != FULL

    @property
    def params_in_layers(self) -> int:
        """Parameters one token passes in the layers: no embedding table, no output head."""
        return self.params_active - self.embed_params * (1 if self.tied else 2)

    @property
    def intermediate(self) -> int:
        """Width of the gated MLP one token passes (all its experts together), inferred from the parameter count.

        Exact for dense models with a gated MLP (Llama-3.1-8B: 14,336); for MLA models the attention's own low-rank
        matrices are counted in, so it is a little high.
        """
        attention = 0 if self.mla else 2 * self.hidden * self.head_dim * (self.attention_heads + self.kv_heads)
        norms = 2 * self.hidden
        return max(round((self.params_in_layers / self.layers - attention - norms) / (3 * self.hidden)), self.hidden)


@cache
def models() -> dict[str, Model]:
    """All models of models.csv by name."""
    return {r["model"]: _model(r) for r in rows("models")}


def find_model(name: str) -> Model:
    """One model by name. Raises ``SettingsError`` with the nearest names if there is none."""
    return find("model", name, models(), "models")


def _model(r: dict[str, str]) -> Model:
    rank, rope = whole(r["mla_kv_lora_rank"]), whole(r["mla_rope_dim"])
    window = whole(r["sliding_window"])
    layers = int(r["layers"])
    kinds = tuple((_kind(part), int(part.rsplit(":", 1)[1])) for part in r["layer_types"].split(";") if part)
    weight_bytes, basis = int(r["ckpt_bytes_approx"]), r["ckpt_bytes_basis"]
    if r["ckpt_dtype"] == "fp8" and basis == "params*2":
        weight_bytes, basis = int(r["params_total"]), "one byte per parameter (fp8 checkpoint)"
    return Model(
        name=r["model"],
        model_type=r["model_type"],
        layers=layers,
        kv_layers=int(r["kv_layers"]),
        hidden=int(r["hidden"]),
        attention_heads=int(r["attn_heads"]),
        kv_heads=1 if rank is not None else int(r["kv_heads"]),
        head_dim=rank + (rope or 0) if rank is not None else int(r["head_dim"]),
        mla_rank=rank,
        mla_rope_dim=rope,
        kv_elements=int(r["kv_elems_per_token_per_layer"]),
        window=window,
        layer_kinds=kinds or (((SLIDING if window else FULL), layers),),
        params_total=int(r["params_total"]),
        params_active=int(r["params_active"]),
        embed_params=int(r["embed_params"]),
        tied=r["tied"] == "1",
        vocab=int(r["vocab"]),
        max_position=int(r["max_position"]),
        checkpoint_dtype=r["ckpt_dtype"],
        weight_bytes=weight_bytes,
        weight_basis=basis,
        source=r["source"],
    )


def _kind(part: str) -> str:
    name = part.rsplit(":", 1)[0]
    return CHUNKED if name.startswith("chunked") else _KINDS[name]
