"""Requests recorded from a running vLLM server: ``{server, mode, requests, results, counters_before?, counters_after?}``.

``requests`` hold prompts as token ids, ``results`` what the server did (``prompt_tokens``, ``completion_tokens``,
``sent``, ``done``). In mode ``sequential`` each request was sent after the one before had ended, so it arrives with
that one's end; otherwise requests arrive as they were sent. Generated tokens were not recorded: they are content of
their own. ``server`` becomes ``Workload.engine``.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from simkv.errors import InputError
from simkv.workload.assemble import codes, order_of_arrival, take, take_lists
from simkv.workload.content import explicit_requests
from simkv.workload.rows import Odd, Row, Tally, Where, kind, whole_column
from simkv.workload.source import Options, Source, gc_paused
from simkv.workload.workload import Workload

SETTINGS = ("block_size", "num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "enable_prefix_caching")


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with the field of what cannot be used."""
    tally = Tally(source.name, options.skip_bad_rows)
    document = source.parsed()
    if not isinstance(document, dict):
        raise InputError(f"found {kind(document)}", file=source.name, expected="a JSON object with requests and results")
    with gc_paused():
        requests, results = _pairs(document, source.name, tally)
    tally.needs_rows(len(requests))
    sent = np.array([r["sent"] for r in results], np.float64)
    sequential = document.get("mode") == "sequential"
    order = order_of_arrival(sent, options.limit, tally)
    counts = np.array([len(r["prompt"]) for r in requests], np.int64)
    flat = np.fromiter(chain.from_iterable(r["prompt"] for r in requests), np.int32, int(counts.sum()))
    flat, counts = take_lists(order, flat, counts)
    num_output, sent = take(order, np.array([r["completion_tokens"] for r in results], np.int64), sent)
    n = len(sent)
    picked = range(n) if order is None else order.tolist()
    nothing = (np.zeros(0, np.int32), np.zeros(n, np.int64))
    runs, first, tokens = explicit_requests((flat, counts), nothing, num_output, source.name)
    optional: dict[str, Any] = {}
    if any(requests[i].get("cache_salt") for i in picked):
        optional["salt"], optional["salts"] = codes([requests[i].get("cache_salt") or "" for i in picked], "")
    if any(requests[i].get("tenant") is not None for i in picked):
        optional["tenant"], optional["tenants"] = codes([str(requests[i].get("tenant", "")) for i in picked])
    if sequential:
        optional["after"] = np.arange(-1, n - 1, dtype=np.int32)
    return Workload(
        source.name,
        "live",
        np.zeros(n) if sequential else sent - sent[0],
        counts.astype(np.int32),
        num_output.astype(np.int32),
        first,
        runs,
        tokens,
        [str(results[i]["i"]) for i in picked],
        engine=_engine(document.get("server"), source.name),
        report=tally.report(),
        **optional,
    )


def _pairs(document: Row, name: str, tally: Tally) -> tuple[list[Row], list[Row]]:
    """Requests and results that belong together."""
    for field in ("requests", "results"):
        if not isinstance(document.get(field), list):
            raise InputError(f"the value is {kind(document.get(field))}", file=name, field=field, expected="a list")
    where = Where(name, None)
    results = {r["i"]: r for r in document["results"] if isinstance(r, dict) and isinstance(r.get("i"), int)}
    kept: list[Row] = []
    got: list[Row] = []
    for k, request in enumerate(document["requests"]):
        tally.rows += 1
        try:
            kept.append(_checked(request, f"requests[{k}]", where, results))
            got.append(results.pop(request["i"]))
        except InputError as e:
            del kept[len(got) :]
            tally.bad(e)
    return kept, got


def _checked(request: Any, at: str, where: Where, results: dict[int, Row]) -> Row:
    if not isinstance(request, dict):
        raise where.error(f"found {kind(request)}", at, "a request with i, prompt and max_tokens")
    i = where.whole({f"{at}.i": request.get("i")}, f"{at}.i")
    if i not in results:
        raise where.error(f"no result with i {i}", at, "one result for every request")
    prompt = request.get("prompt")
    try:
        tokens = whole_column(prompt if isinstance(prompt, list) else [None])
    except Odd:
        tokens = np.zeros(0, np.int64)
    if len(tokens) == 0:
        raise where.error(f"the value is {kind(prompt)}", f"{at}.prompt", "a list of token ids")
    result = {f"results[i={i}].{k}": v for k, v in results[i].items()}
    where.whole(result, f"results[i={i}].completion_tokens", low=1)
    where.number(result, f"results[i={i}].sent")
    if not isinstance(request.get("cache_salt") or "", str):
        raise where.error(f"the value is {kind(request['cache_salt'])}", f"{at}.cache_salt", "a text")
    return request


def _engine(server: Any, name: str) -> dict[str, Any]:
    """The server's settings as fields of EngineSettings."""
    if server is None:
        return {}
    if not isinstance(server, dict):
        raise InputError(f"the value is {kind(server)}", file=name, field="server", expected="an object of engine settings")
    out = {k: server[k] for k in SETTINGS if k in server}
    if isinstance(server.get("vllm"), str):
        out["engine_version"] = ".".join(server["vllm"].split(".")[:2])
    return out
