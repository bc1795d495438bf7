"""What takes GPU memory besides the KV cache. Estimates, each with the sentence that says how it was made."""

from __future__ import annotations

from dataclasses import dataclass

from simkv.hardware.models import Model
from simkv.hardware.tables import GIB, MIB, gb_and_gib

ACTIVATION_BYTES_PER_ELEMENT = 2
LOGIT_BYTES = 8
NON_TORCH_BYTES = GIB // 4
COMMUNICATION_BYTES = 384 * MIB
GRAPH_BYTES_PER_LAYER = 18 * MIB


@dataclass(frozen=True, slots=True)
class Overhead:
    """Bytes on one GPU, and why."""

    weights: int
    activations: int
    non_torch: int
    cuda_graphs: int
    assumptions: tuple[str, ...]

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.activations + self.non_torch + self.cuda_graphs


def overhead(model: Model, tp: int, *, batch_tokens: int, max_num_seqs: int, cuda_graphs: bool) -> Overhead:
    """Estimate everything but the KV cache on one GPU of a tensor-parallel replica.

    The activation rule reproduces two published start-up profiles (Llama-3.1-8B in bf16, 20,000 and 29,000 tokens in
    one batch: 2.07 and 2.99 GiB, vLLM issue 10517) to 1 %; the rest is rounder. An engine's own start-up log is always
    better than this estimate.
    """
    weights = -(-model.weight_bytes // tp)
    per_token = 3 * ACTIVATION_BYTES_PER_ELEMENT * (-(-model.intermediate // tp) + model.hidden)
    logits = max_num_seqs * model.vocab * LOGIT_BYTES
    non_torch = NON_TORCH_BYTES + (COMMUNICATION_BYTES if tp > 1 else 0)
    graphs = GRAPH_BYTES_PER_LAYER * model.layers if cuda_graphs else 0
    said = [
        f"Weights take {gb_and_gib(weights)} per GPU: the checkpoint's size ({model.weight_basis}), divided evenly by {tp}.",
        f"The activation peak is taken as {per_token:,} bytes for each of {batch_tokens:,} tokens in a full batch"
        f" (2 bytes x 3 x (MLP width {model.intermediate:,} / {tp} + hidden size {model.hidden:,}))"
        f" plus {LOGIT_BYTES} bytes per logit of {max_num_seqs:,} requests and {model.vocab:,} tokens of vocabulary.",
        f"Memory outside torch (libraries, workspaces{', communication buffers' if tp > 1 else ''}) is taken as {gb_and_gib(non_torch)}.",
        f"CUDA graphs are taken as {GRAPH_BYTES_PER_LAYER // MIB} MiB per layer and reserved before the KV cache."
        if cuda_graphs
        else "CUDA graphs are not reserved: this engine version captures them on top of the budget.",
    ]
    return Overhead(weights, per_token * batch_tokens + logits, non_torch, graphs, tuple(said))
