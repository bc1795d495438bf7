"""OpenAI-style request logs: JSON lines, one chat-completions (or completions) call a line, as gateways and batch files write them.

Where things may stand (the first found counts; a JSON text is opened):

* request body: the row itself, ``body``, ``request``, ``request.body``, ``request_body``, ``params``, ``input``. It has ``messages``
  (chat), or ``prompt`` (a text or token ids).
* answer: ``response``, ``response.body``, ``response_body``, or the row: ``choices[0].message`` or ``.text``, and
  ``usage.completion_tokens``; or a text in ``output``, ``completion``, ``answer``, ``response_text``, ``response``.
* time: ``TIME_FIELDS`` in the row or body, else the answer's ``created``: ISO 8601 or seconds, milliseconds, microseconds,
  nanoseconds since 1970 (told apart by size) or since the start. Without any time all requests arrive at once.
* ``cache_salt`` and ``priority``: the body's. Tenant, session and id: ``TENANT_FIELDS``, ``SESSION_FIELDS``, ``ID_FIELDS``.

Prompts become real tokens, see chat_template.py. The output is the answer's text; where that is missing, as many
tokens of its own as ``usage`` or ``max_tokens`` say. Calls without any of these cannot be replayed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simkv.errors import InputError
from simkv.workload.assemble import codes, order_of_arrival
from simkv.workload.content import encoder, explicit_requests
from simkv.workload.rows import MAX_LENGTH, Row, Tally, Where, checked_rows, kind
from simkv.workload.source import Options, Source, gc_paused
from simkv.workload.traces.chat_template import answer_text, prompt_text
from simkv.workload.traces.lmcache import note_tokens
from simkv.workload.traces.openai_fields import ID_FIELDS, SESSION_FIELDS, TENANT_FIELDS, Call, call_of, label
from simkv.workload.workload import I4, I8, Workload


def read(source: Source, options: Options) -> Workload:
    """Raises InputError with line and field for a row that cannot be used."""
    tally = Tally(source.name, options.skip_bad_rows)
    encode = encoder(options.tokenizer)
    calls: list[Call] = []
    with gc_paused():
        checked_rows(source, tally, lambda row, line: calls.append(_call(row, Where(source.name, line))))
        calls = _timed(calls, source.name, tally)
        arrive = np.array([c.time for c in calls], np.float64)
        order = order_of_arrival(arrive, options.limit, tally)
        if order is not None:
            calls, arrive = [calls[i] for i in order.tolist()], arrive[order]
        prompts = _prompts(calls, encode)
        if not prompts[1].all():
            raise InputError("a prompt has no tokens", file=source.name, expected="at least one token", hint="Try another tokenizer")
        outputs = encode([c.answer or "" for c in calls])
    note_tokens(options, tally)
    num_output = _num_output(calls, outputs[1], tally)
    _compare_usage(calls, prompts[1], tally)
    runs, first, tokens = explicit_requests(prompts, outputs, num_output, source.name)
    return Workload(
        source.name,
        "openai-log",
        arrive - arrive[0],
        prompts[1].astype(np.int32),
        num_output.astype(np.int32),
        first,
        runs,
        tokens,
        report=tally.report(),
        **_optional(calls),
    )


def _call(row: Row, where: Where) -> Call:
    call = call_of(row, where)
    body = call.body
    if "messages" in body:
        call.prompt, call.images = prompt_text(body, where)
    else:
        prompt = body["prompt"]
        is_ids = (
            isinstance(prompt, list) and not set(map(type, prompt)) - {int} and prompt and min(prompt) >= 0 and max(prompt) <= MAX_LENGTH
        )
        if not is_ids and not (isinstance(prompt, str) and prompt):
            raise where.error(f"the value is {kind(prompt)}", "prompt", "a text or a list of token ids")
        call.prompt = prompt
    call.answer = answer_text(call.reply, row, "messages" in body, where)
    if call.answer is None and not call.usage.get("completion_tokens") and call.max_tokens is None:
        expected = "the answer's text, usage.completion_tokens or max_tokens"
        raise where.error("nothing says how long the answer was", "response", expected, "A failed call has no answer: leave it out")
    return call


def _timed(calls: list[Call], name: str, tally: Tally) -> list[Call]:
    """Calls with their times; those without one are bad unless none has any."""
    known = [c for c in calls if c.time is not None]
    if not known:
        tally.notes.append("No times in the log: all requests arrive at once.")
        for c in calls:
            c.time = 0.0
        return calls
    if len(known) < len(calls):
        for c in calls:
            if c.time is None:
                tally.bad(c.where.error("the row has no time, others have", "timestamp", "a time in every row or in none"))
    return known


def _prompts(calls: list[Call], encode: Any) -> tuple[I4, I8]:
    """Tokens of every prompt: given ids as they are, texts encoded."""
    flat, counts = encode([c.prompt if isinstance(c.prompt, str) else "" for c in calls])
    if all(isinstance(c.prompt, str) for c in calls):
        return flat, counts
    parts = np.split(flat, np.cumsum(counts)[:-1])
    parts = [p if isinstance(c.prompt, str) else np.array(c.prompt, np.int32) for p, c in zip(parts, calls, strict=True)]
    return np.concatenate(parts), np.array([len(p) for p in parts], np.int64)


def _num_output(calls: list[Call], known: I8, tally: Tally) -> I8:
    """Tokens each call generates: its text's, else what usage says, else max_tokens."""
    out = known.copy()
    guessed = 0
    for i, c in enumerate(calls):
        if c.answer is None:
            used = c.usage.get("completion_tokens")
            guessed += not used
            out[i] = used or c.max_tokens or 0
    if guessed:
        tally.notes.append(f"{guessed} answers are as long as max_tokens allows: neither text nor usage is in the log.")
    images = sum(c.images for c in calls)
    if images:
        tally.notes.append(f"{images} images stand as a short text that names them: their own tokens are not counted.")
    zero = int(np.count_nonzero(out == 0))
    if zero:
        tally.notes.append(f"{zero} empty answers replayed with 1 token: an engine generates at least one.")
    return np.maximum(out, 1)


def _compare_usage(calls: list[Call], counts: I8, tally: Tally) -> None:
    """Say how far the prompts' lengths are from what the server counted."""
    pairs = [(c.usage["prompt_tokens"], int(n)) for c, n in zip(calls, counts, strict=True) if c.usage.get("prompt_tokens")]
    if pairs:
        theirs, ours = sum(p[0] for p in pairs), sum(p[1] for p in pairs)
        tally.notes.append(
            f"The server counted {theirs:,} prompt tokens where this reading has {ours:,} ({ours / theirs:.2f} times as many)."
        )


def _optional(calls: list[Call]) -> dict[str, Any]:
    """Columns only some logs have."""
    out: dict[str, Any] = {}
    for column, names, fields in (("tenant", "tenants", TENANT_FIELDS), ("session", "sessions", SESSION_FIELDS)):
        values = [label(c.row, c.body, fields) for c in calls]
        if any(values):
            out[column], out[names] = codes(values)
    salts = [c.body.get("cache_salt") or "" for c in calls]
    if any(salts):
        out["salt"], out["salts"] = codes(salts, "")
    if any(c.priority for c in calls):
        out["priority"] = np.array([c.priority for c in calls], np.int32)
    ids = [label(c.row, c.body, ID_FIELDS) for c in calls]
    if all(ids) and len(set(ids)) == len(ids):
        out["ids"] = ids
    return out
