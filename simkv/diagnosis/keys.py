"""The chain keys of a request as its run's event log has them: same content and same namespace, same key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simkv.engine.vllm.chain import chain_keys
from simkv.engine.vllm.keys import root_key
from simkv.replay import Run


def namespace(run: Run, req: int) -> tuple[str | None, ...]:
    """What keeps a request's content apart from others'; requests that differ here never share.

    vLLM: salt, adapter, in some releases its path (they are in the first block's hash). SGLang: extra_key with the
    adapter's name behind it, and salt (schedule_batch.py, Req).
    """
    w = run.workload
    salt = w.salts[w.salt[req]] if w.salt is not None else ""
    adapter = w.loras[w.lora[req]] if w.lora is not None and w.lora[req] >= 0 else None
    if run.resolved.engine == "sglang":
        extra = w.extra_keys[w.extra_key[req]] if w.extra_key is not None and w.extra_key[req] >= 0 else None
        if adapter is not None:
            extra = (extra or "") + adapter.name
        return extra, salt or None
    if adapter is None:
        return salt, "", ""
    return salt, adapter.name, adapter.path if run.resolved.lora_path_in_key else ""


def request_keys(run: Run, req: int, upto: int | None = None) -> npt.NDArray[np.uint64]:
    """64-bit keys of the request's full hashed blocks, prompt and output, for KV group 0.

    Args:
        upto: only the first so many.
    """
    root = None
    if run.resolved.engine == "sglang":
        extra, salt = namespace(run, req)
        root = root_key(salt or "", "\0" if extra == "" else extra or "")
    return chain_keys(run.workload, req, run.resolved.hash_block_size, root, lora_path=run.resolved.lora_path_in_key, upto=upto)
