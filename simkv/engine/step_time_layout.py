"""The record through which the compiled engines learn how long a step takes."""

from __future__ import annotations

import numpy as np

STEP_INDEX, LINEAR, ROOFLINE = 0, 1, 2
"""Values of ``mode``. STEP_INDEX: arrivals are step numbers and a step takes no time."""

STEP_TIME = np.dtype(
    [
        ("mode", "i8"),
        # linear: a + b * prefill tokens + c * decoding requests, in seconds
        ("a", "f8"),
        ("b", "f8"),
        ("c", "f8"),
        # roofline: overhead_s + max(flops / peak_flops, bytes / bandwidth), over rows (computed, n) of the batch, where
        #   flops = flops_per_token * sum(n) + flops_per_token_context * sum(n * (computed + n / 2))
        #   bytes = weight_bytes + kv_bytes_per_token * sum(computed + n)
        ("overhead_s", "f8"),
        ("flops_per_token", "f8"),
        ("flops_per_token_context", "f8"),
        ("weight_bytes", "f8"),
        ("kv_bytes_per_token", "f8"),
        ("peak_flops", "f8"),  # per second, achievable, all GPUs of the replica
        ("bandwidth", "f8"),  # bytes per second, achievable, all GPUs of the replica
    ]
)
