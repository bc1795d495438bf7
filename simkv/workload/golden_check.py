"""Our own format, looked at request by request: what is missing or wrong, where, and what was expected."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any

import numpy as np

from simkv.errors import InputError
from simkv.workload.golden_offload import check_transfer_params
from simkv.workload.rows import MAX_LENGTH, Row, Tally, Where, kind
from simkv.workload.source import Source, broken_json, gc_paused
from simkv.workload.workload import F8

LARGEST_SEED = (1 << 63) - 1
OPTIONAL = ("cache_salt", "tenant", "session", "after", "priority", "skip_reading_prefix_cache", "lora", "kv_transfer_params")
NUMBERED_ACTIONS = "an action with at and op"


def parts(source: Source, tally: Tally) -> tuple[Row, list[Any], list[int | None], list[tuple[int | None, Row]]]:
    """``(header, requests, line of each request, [(line, action)])`` of either form of the file."""
    document = source.document()
    if isinstance(document, dict) and "requests" in document:
        requests, actions = document["requests"], document.get("actions") or []
        for name, value in (("requests", requests), ("actions", actions)):
            if not isinstance(value, list):
                raise InputError(f"the value is {kind(value)}", file=source.name, field=name, expected="a list")
        if not requests:
            raise InputError("the list is empty", file=source.name, field="requests", expected="at least one request")
        tally.rows = len(requests)
        return document, requests, [None] * len(requests), [(None, a) for a in actions]
    if document is None and source.first_object() is None:
        raise _not_json(source)
    return _lines(source, tally)


def _lines(source: Source, tally: Tally) -> tuple[Row, list[Any], list[int | None], list[tuple[int | None, Row]]]:
    header: Row = {}
    requests: list[Any] = []
    numbers: list[int | None] = []
    actions: list[tuple[int | None, Row]] = []
    first = True
    with gc_paused():
        for line, text in source.lines():
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as e:
                tally.bad(broken_json(e, text, source.name, line))
                tally.rows += 1
                continue
            if isinstance(row, dict) and "prompt" not in row and ("config" in row or "simkv" in row or "time" in row):
                if not first:
                    raise InputError("a second header", file=source.name, line=line, expected="a request or an action")
                header = row
            elif isinstance(row, dict) and "op" in row:
                actions.append((line, row))
            else:
                requests.append(row)
                numbers.append(line)
                tally.rows += 1
            first = False
    tally.needs_rows(len(requests))
    return header, requests, numbers, actions


def _not_json(source: Source) -> InputError:
    try:
        json.loads(source.text)
    except (ValueError, RecursionError) as e:
        return broken_json(e, source.text, source.name, 1, "a JSON object with requests, or JSON lines")
    return InputError(
        "no requests in the file", file=source.name, expected="a JSON object with config, time and requests, or simkv JSON lines"
    )


def check_time(header: Row, file: str) -> dict[str, Any]:
    """The header's ``time``: mode step (where it is missing), virtual with a, b, c in seconds, or seconds."""
    where, time = Where(file, None), header.get("time", {"mode": "step"})
    if not isinstance(time, dict) or time.get("mode") not in ("step", "virtual", "seconds"):
        allowed = '{"mode": "step"}, {"mode": "virtual", "a", "b", "c"} or {"mode": "seconds"}'
        raise where.error(f"the value is {kind(time)}", "time", allowed)
    if time["mode"] != "virtual":
        return {"mode": time["mode"]}
    return {"mode": "virtual", **{k: where.number(time, k) for k in "abc"}}


def steps_unless_told(ids: list[str], arrive: F8, tally: Tally) -> None:
    """What ``arrive`` counts in a file without ``time``: steps, which is noted; InputError where it has fractions."""
    for_seconds = 'For seconds add "time": {"mode": "seconds"} (in JSON lines as a first line {"simkv": 1, "time": {"mode": "seconds"}})'
    fractions = np.flatnonzero(arrive != np.floor(arrive))
    if len(fractions):
        at = int(fractions[0])
        raise InputError(
            f'"{ids[at][:40]}" arrives at {arrive[at]:g}, but without a time header arrive counts steps',
            file=tally.name,
            field="arrive",
            expected="whole numbers or a time header",
            hint=for_seconds,
        )
    tally.notes.append(f"Times are step numbers: the file has no time header. {for_seconds}.")


def check_config(header: Row, file: str) -> dict[str, Any] | None:
    """The header's ``config``, if it has one. Values are checked by EngineSettings; only shapes the reader relies on here."""
    config, where = header.get("config"), Where(file, None)
    if config is None:
        return None
    if not isinstance(config, dict):
        raise where.error(f"the value is {kind(config)}", "config", "an object of engine settings")
    groups = config.get("hybrid") or []
    if not isinstance(groups, list) or not all(isinstance(g, dict) for g in groups):
        raise where.error(f"the value is {kind(groups)}", "config.hybrid", "a list of KV groups")
    for holder, name in ((config, "config.block_size"), *((g, f"config.hybrid[{i}].block_size") for i, g in enumerate(groups))):
        if "block_size" in holder and (holder is config or holder["block_size"] is not None):
            where.whole({name: holder["block_size"]}, name, low=1, high=65536)
    return config


def check_request(request: Any, index: int, where: Where, seen: dict[str, int]) -> Row:
    """A request with every number a whole number and nothing unknown, or InputError for the first thing wrong with it.

    Args:
        index: its place in the file, named in errors where there is no line.
        seen: tokens (prompt and output) of each earlier usable request, by id; this one is added.
    """
    at = f"requests[{index}]" if where.line is None else ""
    if not isinstance(request, dict):
        raise where.error(f"found {kind(request)}", at or None, "a request with id, arrive, prompt and output_len")
    prefix = at + "." if at else ""
    named = {prefix + k: v for k, v in request.items()}
    rid = where.value(named, prefix + "id", "a text")
    if not isinstance(rid, str):
        raise where.error(f"the value is {kind(rid)}", prefix + "id", "a text")
    if rid in seen:
        raise where.error(f'the id "{rid[:40]}" is taken by an earlier request', prefix + "id", "a different id for every request")
    out: Row = {"id": rid, "arrive": where.number(named, prefix + "arrive"), "output_len": where.whole(named, prefix + "output_len", low=1)}
    if request.get("out_seed") is not None:
        out["out_seed"] = where.whole(named, prefix + "out_seed", high=LARGEST_SEED)
    out["prompt"], total = _prompt(where, named, prefix, seen)
    total += out["output_len"]
    if total > MAX_LENGTH:
        raise where.error(f"{total} tokens with the output", prefix + "prompt", f"at most {MAX_LENGTH}")
    out |= _optional(where, request, prefix, seen)
    seen[rid] = total
    return out


def _prompt(where: Where, named: Row, prefix: str, seen: dict[str, int]) -> tuple[list[Any], int]:
    """The segments of a prompt and its tokens."""
    prompt = where.value(named, prefix + "prompt", "a list of segments")
    if not isinstance(prompt, list) or not prompt:
        raise where.error(f"the value is {kind(prompt) if prompt else 'empty'}", prefix + "prompt", "a list of at least one segment")
    out: list[Any] = []
    total = 0
    for j, segment in enumerate(prompt):
        name = f"{prefix}prompt[{j}]"
        if isinstance(segment, list):
            out.append([where.whole({f"{name}[{t}]": token}, f"{name}[{t}]") for t, token in enumerate(segment)])
            total += len(segment)
        elif isinstance(segment, dict) and "history" in segment:
            if not isinstance(segment["history"], str) or segment["history"] not in seen:
                raise where.error(f"the value is {kind(segment['history'])}", name + ".history", "the id of an earlier request")
            out.append({"history": segment["history"]})
            total += seen[segment["history"]]
        elif isinstance(segment, dict):
            inner = {f"{name}.{k}": v for k, v in segment.items()}
            seed, n = where.whole(inner, name + ".seed", high=LARGEST_SEED), where.whole(inner, name + ".n")
            out.append({"seed": seed, "n": n, "start": where.whole(inner, name + ".start") if "start" in segment else 0})
            total += n
        else:
            raise where.error(f"the value is {kind(segment)}", name, "token ids, {seed, n} or {history}")
    if total == 0:
        raise where.error("the prompt has no tokens", prefix + "prompt", "at least one token")
    return out, total


def _optional(where: Where, request: Row, prefix: str, seen: Container[str]) -> Row:
    """The optional fields that are there and not null."""
    out = {k: request[k] for k in OPTIONAL if request.get(k) is not None}
    named = {prefix + k: v for k, v in out.items()}
    for field in ("cache_salt", "tenant", "session", "after"):
        if field in out and not isinstance(out[field], str):
            raise where.error(f"the value is {kind(out[field])}", prefix + field, "a text")
    if "after" in out and out["after"] not in seen:
        raise where.error(f"the value is {kind(out['after'])}", prefix + "after", "the id of an earlier request")
    if "priority" in out:
        out["priority"] = where.whole(named, prefix + "priority", low=-(1 << 31))
    if "skip_reading_prefix_cache" in out and not isinstance(out["skip_reading_prefix_cache"], bool):
        raise where.error(f"the value is {kind(out['skip_reading_prefix_cache'])}", prefix + "skip_reading_prefix_cache", "true or false")
    if "kv_transfer_params" in out:
        out["kv_transfer_params"] = check_transfer_params(where, out["kv_transfer_params"], prefix + "kv_transfer_params")
    if "lora" in out:
        out["lora"] = _lora(where, out["lora"], prefix + "lora")
    return out


def _lora(where: Where, lora: Any, name: str) -> Row:
    if not isinstance(lora, dict):
        raise where.error(f"the value is {kind(lora)}", name, "an adapter {name, id, path?}")
    inner = {f"{name}.{k}": v for k, v in lora.items()}
    number = where.whole(inner, name + ".id", low=1)
    for field in ("name", "path"):
        if (field == "name" or "path" in lora) and not isinstance(where.value(inner, f"{name}.{field}", "a text"), str):
            raise where.error(f"the value is {kind(lora[field])}", f"{name}.{field}", "a text")
    return {**{k: lora[k] for k in ("name", "path") if k in lora}, "id": number}


def check_action(action: Any, index: int, where: Where) -> None:
    """Raise InputError for an action that cannot be carried out."""
    at = f"actions[{index}]" if where.line is None else ""
    if not isinstance(action, dict):
        raise where.error(f"found {kind(action)}", at or None, NUMBERED_ACTIONS)
    prefix = at + "." if at else ""
    named = {prefix + k: v for k, v in action.items()}
    where.number(named, prefix + "at")
    op = where.value(named, prefix + "op", "reset_prefix_cache or abort")
    if op == "abort":
        rid = where.value(named, prefix + "id", "the id of a request")
        if not isinstance(rid, str):
            raise where.error(f"the value is {kind(rid)}", prefix + "id", "the id of a request")
    elif op != "reset_prefix_cache":
        raise where.error(f"the value is {kind(op)}", prefix + "op", "reset_prefix_cache or abort")
