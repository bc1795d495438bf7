"""Settings vLLM chooses by itself when none are given to ``vllm serve`` (vllm/engine/arg_utils.py)."""

from __future__ import annotations

from simkv.hardware.gpus import Gpu
from simkv.hardware.tables import GIB


def batch_defaults(
    gpu: Gpu, max_model_len: int | None, chunked_prefill: bool, max_num_seqs: int | None, budget: int | None
) -> tuple[int, int]:
    """``(max_num_batched_tokens, max_num_seqs)`` of a server on this GPU; given values stay as they are.

    By the memory of one GPU: 160 GiB or more 16,384 tokens and 1,024 requests; 70 GiB or more and no A100 8,192 and
    1,024; everything else 2,048 and 256. Without chunked prefill the token budget is at least the longest request. A
    default budget never exceeds what all requests together can hold; a default request limit never exceeds the budget.
    """
    # No card lies near a threshold, so it does not matter that torch reports a little less than the driver.
    if gpu.driver_bytes >= 160 * GIB:
        tokens, seqs = 16384, 1024
    elif gpu.driver_bytes >= 70 * GIB and "a100" not in gpu.name.lower():
        tokens, seqs = 8192, 1024
    else:
        tokens, seqs = 2048, 256
    limit = max_num_seqs if max_num_seqs is not None else seqs
    if budget is None:
        if max_model_len is not None:
            tokens = tokens if chunked_prefill else max(tokens, max_model_len)
            tokens = min(tokens, limit * max_model_len)
        budget = tokens
    return budget, limit if max_num_seqs is not None else min(limit, budget)
