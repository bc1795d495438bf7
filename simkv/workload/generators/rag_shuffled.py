"""Retrieval whose passages come in another order every time."""

from __future__ import annotations

import numpy as np

from simkv.errors import SettingsError
from simkv.workload.generators.arrivals import arrivals
from simkv.workload.generators.build import OWN, SHARED, Piece, workload
from simkv.workload.generators.draws import Draws, popularity
from simkv.workload.generators.params import LENGTH_CV, REQUESTS, SALTS, TENANTS, Generator, Param, Values, arriving
from simkv.workload.workload import I8, Workload

ROWS = 4096


def make(draws: Draws, v: Values) -> Workload:
    """Prompt = system prompt + some passages of the library + a question of its own."""
    n, library, picked = v["requests"], v["library"], v["passages"]
    if picked > library:
        raise SettingsError("passages", picked, f"at most the library's {library} passages")
    when = arrivals(draws, n, v)
    passages = pick(draws, n, library, picked, v["skew"])
    if v["order"] == "sorted":
        passages.sort(axis=1)
    length = draws.lengths("passages", library, v["passage_tokens"], v["length_cv"])
    question = draws.lengths("question", n, v["question_tokens"], v["length_cv"])
    output = draws.lengths("output", n, v["output_tokens"], v["length_cv"])
    pieces = [Piece(SHARED, v["system_tokens"])]
    pieces += [Piece(SHARED + 1 + passages[:, k], length[passages[:, k]]) for k in range(picked)]
    pieces.append(Piece(OWN + draws.numbers(n), question))
    return workload("rag_shuffled", when, pieces, output, tenant=when.user % v["tenants"], tenants=v["tenants"])


def pick(draws: Draws, n: int, library: int, picked: int, skew: float) -> I8:
    """``[n, picked]`` different passages a request, popular ones more often, in the order they were drawn.

    Drawing without replacement as a race: passage ``k`` finishes after an exponential time of rate ``popularity[k]``.
    """
    rate, stream = popularity(library, skew), draws.stream("pick")
    rows = []
    for low in range(0, n, ROWS):
        finish = stream.exponential(1.0, (min(ROWS, n - low), library)) / rate
        best = np.argpartition(finish, picked - 1, axis=1)[:, :picked]
        rows.append(np.take_along_axis(best, np.argsort(np.take_along_axis(finish, best, axis=1), axis=1), axis=1))
    return np.concatenate(rows).astype(np.int64)


GENERATOR = Generator(
    name="rag_shuffled",
    title="RAG, shuffled passages",
    story="The retriever finds popular passages again and again, but ranks them differently each time. The same passages are"
    " recomputed although they are in the cache: only an equal beginning can be reused. order=sorted shows the cure.",
    params=(
        REQUESTS,
        TENANTS,
        Param("library", 200, "passages in the library", 1, 20_000),
        Param("passages", 8, "passages in each prompt", 1, 200),
        Param("skew", 1.0, "how unevenly passages are retrieved (Zipf exponent; 0 = evenly)", 0, 4),
        Param("order", "shuffled", "order of the passages in the prompt", choices=("shuffled", "sorted")),
        Param("system_tokens", 300, "tokens of the system prompt, the same for all", 0, 1_000_000),
        Param("passage_tokens", 500, "mean tokens of a passage", 1, 1_000_000),
        Param("question_tokens", 100, "mean tokens of a question", 1, 1_000_000),
        Param("output_tokens", 250, "mean tokens of an answer", 1, 100_000),
        LENGTH_CV,
        *arriving(),
        SALTS,
    ),
    make=make,
)
