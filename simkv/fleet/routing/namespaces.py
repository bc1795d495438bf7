"""Which prompts may share anything at all: the same cache salt and the same model or adapter."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.engine.vllm.keys import root_key
from simkv.workload.workload import Workload


def roots(workload: Workload, salts: bool) -> npt.NDArray[np.uint64]:
    """A number per request, equal where adapter (and, with ``salts``, cache salt) are equal, shape ``[n]``."""
    n, w = len(workload), workload
    lora = w.lora if w.lora is not None else np.full(n, -1, np.int32)
    salt = w.salt if salts and w.salt is not None else np.zeros(n, np.int32)
    names = w.salts if salts else ("",)
    both, which = np.unique(np.stack([lora, salt]), axis=1, return_inverse=True)
    keys = [root_key(names[s] if s >= 0 else "", w.loras[a].name if a >= 0 else "") for a, s in both.T.tolist()]
    return np.array(keys, np.uint64)[which.reshape(-1)]
