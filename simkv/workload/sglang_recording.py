"""The input of runs recorded from SGLang's scheduler: ``{config?, requests: [...]}``, prompts and outputs as token ids.

request: ``{rid, prompt: [ids], output: [ids], arrive?, max_new_tokens?, ignore_eos?, extra_key?, cache_salt?, lora_id?, priority?}``.
``arrive`` counts scheduling passes. ``output`` is what the model will say. A request whose max_new_tokens (clipped to pool and
context as at intake) is larger than that ends with the last token of ``output``, which stands for the end-of-sequence token 2;
an earlier 2 ends it there. Else it ends after max_new_tokens.

``config``: the recording tool's settings and *its* defaults. A file ``{config?, ops: [...]}`` holds cache operations
instead of requests; only ``simkv conformance`` can do something with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from simkv.errors import InputError
from simkv.workload.assemble import codes, order_of_arrival
from simkv.workload.content import MOST_TOKENS
from simkv.workload.rows import Odd, Row, Tally, Where, kind, whole_column
from simkv.workload.source import Options, Source, gc_paused
from simkv.workload.workload import RUN, Lora, Workload

EOS = 2
DEFAULTS: dict[str, Any] = {
    "page_size": 1,
    "capacity": 256,
    "max_running_requests": 64,
    "max_context_len": 4096,
    "schedule_policy": "fcfs",
    "eviction_policy": "lru",
    "eviction_policy_config": None,
    "chunked_prefill_size": 8192,
    "max_prefill_tokens": 16384,
    "schedule_conservativeness": 1.0,
    "enable_mixed_chunk": False,
    "enable_priority_scheduling": False,
    "schedule_low_priority_values_first": False,
    "retraction_policy": None,
}
"""The recording tool's settings."""
RENAMED = {
    "capacity": "max_total_tokens",
    "max_context_len": "context_length",
    "eviction_policy": "radix_eviction_policy",
    "eviction_policy_config": "radix_eviction_policy_config",
}
NAMESPACES = ("extra_key", "cache_salt", "lora_id")


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with the field of what cannot be used."""
    tally = Tally(source.name, options.skip_bad_rows)
    document = source.parsed()
    if not isinstance(document, dict) or not isinstance(document.get("requests"), list):
        if isinstance(document, dict) and "ops" in document:
            raise InputError(
                "the file holds cache operations, no requests", file=source.name, field="ops", hint="`simkv conformance` replays it"
            )
        raise InputError(f"found {kind(document)}", file=source.name, expected="a JSON object with a list of requests")
    config = {**DEFAULTS, **_config(document.get("config"), source.name)}
    where, seen = Where(source.name, None), set[str]()
    rows: list[Row] = []
    for k, request in enumerate(document["requests"]):
        tally.rows += 1
        try:
            rows.append(_checked(request, f"requests[{k}]", where, seen))
        except InputError as e:
            tally.bad(e)
    tally.needs_rows(len(rows))
    order = order_of_arrival(np.array([r["arrive"] for r in rows]), options.limit, tally)
    if order is not None:
        rows = [rows[i] for i in order.tolist()]
    with gc_paused():
        return _workload(source.name, rows, config, tally)


def _config(config: Any, name: str) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise InputError(f"the value is {kind(config)}", file=name, field="config", expected="an object of settings")
    for field in ("page_size", "capacity", "max_context_len"):
        if field in config and not (type(config[field]) is int and 0 < config[field] < 1 << 31):
            raise InputError(
                f"the value is {kind(config[field])}", file=name, field=f"config.{field}", expected="a whole number of at least 1"
            )
    return dict(config)


def _checked(request: Any, at: str, where: Where, seen: set[str]) -> Row:
    """The request's fields, each of its own type."""
    if not isinstance(request, dict):
        raise where.error(f"found {kind(request)}", at, "a request with rid, prompt and output")
    named = {f"{at}.{k}": v for k, v in request.items()}
    rid = where.value(named, f"{at}.rid", "a text")
    if not isinstance(rid, str) or rid in seen:
        raise where.error(f"the value is {kind(rid)}", f"{at}.rid", "a text that no other request has")
    seen.add(rid)
    out: Row = {"rid": rid, "arrive": where.number({f"{at}.arrive": request.get("arrive", 0)}, f"{at}.arrive")}
    for field in ("prompt", "output"):
        given = where.value(named, f"{at}.{field}", "a list of token ids")
        try:
            out[field] = whole_column(given if isinstance(given, list) else [None])
        except Odd:
            raise where.error(f"the value is {kind(given)}", f"{at}.{field}", "a list of token ids") from None
        if len(given) == 0:
            raise where.error("the list is empty", f"{at}.{field}", "at least one token id")
    out["max_new"] = where.whole(named, f"{at}.max_new_tokens") if "max_new_tokens" in request else len(out["output"])
    out["priority"] = 0
    if request.get("priority") is not None:
        out["priority"] = where.whole(named, f"{at}.priority", low=-(1 << 31))
    for field in NAMESPACES:
        if not isinstance(request.get(field), (str, type(None))):
            raise where.error(f"the value is {kind(request[field])}", f"{at}.{field}", "a text")
        out[field] = request.get(field)
    out["ignore_eos"] = request.get("ignore_eos", False)
    if type(out["ignore_eos"]) is not bool:
        raise where.error(f"the value is {kind(out['ignore_eos'])}", f"{at}.ignore_eos", "true or false")
    return out


def generated_tokens(request: Row, config: Mapping[str, Any]) -> int:
    """How many tokens the request generates at most if nothing but its own output ends it."""
    output, page = request["output"], int(config["page_size"])
    prompt = len(request["prompt"])
    room = int(config["capacity"]) - -(-prompt // page) * page - page - 1
    clipped = max(min(request["max_new"], int(config["max_context_len"]) - prompt - 1, room), 0)
    if clipped <= len(output) or request["ignore_eos"]:
        return len(output)
    ends = np.flatnonzero(output[:-1] == EOS)
    return int(ends[0]) + 1 if len(ends) else len(output)


def _workload(name: str, rows: list[Row], config: dict[str, Any], tally: Tally) -> Workload:
    n = len(rows)
    num_prompt = np.array([len(r["prompt"]) for r in rows], np.int64)
    num_output = np.array([generated_tokens(r, config) for r in rows], np.int64)
    total = num_prompt + num_output
    if int(total.sum()) > MOST_TOKENS:
        raise InputError(f"{int(total.sum()):,} tokens", file=name, expected=f"at most {MOST_TOKENS:,}", hint="Use limit")
    runs = np.zeros(n, RUN)
    runs["seed"], runs["start"], runs["n"] = -1, np.cumsum(total) - total, total
    tokens = np.concatenate(
        list(chain.from_iterable((r["prompt"], r["output"][:k]) for r, k in zip(rows, num_output.tolist(), strict=True)))
    )
    optional: dict[str, Any] = {}
    if any(r["cache_salt"] for r in rows):
        optional["salt"], optional["salts"] = codes([r["cache_salt"] or "" for r in rows], "")
    if any(r["lora_id"] is not None for r in rows):
        names = list(dict.fromkeys(r["lora_id"] for r in rows if r["lora_id"] is not None))
        optional["lora"] = np.array([-1 if r["lora_id"] is None else names.index(r["lora_id"]) for r in rows], np.int32)
        optional["loras"] = tuple(Lora(x, k + 1, "") for k, x in enumerate(names))
    if any(r["extra_key"] is not None for r in rows):
        texts = list(dict.fromkeys(r["extra_key"] for r in rows if r["extra_key"] is not None))
        optional["extra_key"] = np.array([-1 if r["extra_key"] is None else texts.index(r["extra_key"]) for r in rows], np.int32)
        optional["extra_keys"] = tuple(texts)
    if any(r["priority"] for r in rows):
        optional["priority"] = np.array([r["priority"] for r in rows], np.int32)
    if any(r["ignore_eos"] for r in rows):
        optional["ignore_eos"] = np.array([r["ignore_eos"] for r in rows], bool)
    arrive = np.array([r["arrive"] for r in rows], np.float64)
    return Workload(
        name,
        "sglang",
        arrive,
        num_prompt.astype(np.int32),
        num_output.astype(np.int32),
        np.arange(n + 1),
        runs,
        tokens.astype(np.int32),
        [r["rid"] for r in rows],
        max_new=np.array([r["max_new"] for r in rows], np.int32),
        time_unit="steps",
        engine=engine_settings(config),
        step_time={"mode": "step"},
        report=tally.report(),
        **optional,
    )


def engine_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The recording tool's settings as fields of SglangSettings."""
    out = {RENAMED.get(k, k): v for k, v in config.items() if k in DEFAULTS}
    out["retraction_policy"] = out["retraction_policy"] or "length"
    if out["chunked_prefill_size"] is None:
        out["chunked_prefill_size"] = -1
    return {"engine": "sglang", **out, "disable_priority_preemption": True}
