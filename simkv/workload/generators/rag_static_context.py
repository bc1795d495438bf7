"""Retrieval with one stable context in front."""

from __future__ import annotations

from simkv.workload.generators.arrivals import arrivals
from simkv.workload.generators.build import OWN, SHARED, Piece, workload
from simkv.workload.generators.draws import Draws
from simkv.workload.generators.params import LENGTH_CV, REQUESTS, SALTS, TENANTS, Generator, Param, Values, arriving
from simkv.workload.workload import Workload


def make(draws: Draws, v: Values) -> Workload:
    """Prompt = system prompt of all + context of the tenant + a question of its own."""
    n = v["requests"]
    when = arrivals(draws, n, v)
    tenant = when.user % v["tenants"]
    question = draws.lengths("question", n, v["question_tokens"], v["length_cv"])
    output = draws.lengths("output", n, v["output_tokens"], v["length_cv"])
    pieces = [
        Piece(SHARED, v["system_tokens"]),
        Piece(SHARED + 1 + tenant, v["context_tokens"]),
        Piece(OWN + draws.numbers(n), question),
    ]
    return workload("rag_static_context", when, pieces, output, tenant=tenant, tenants=v["tenants"])


GENERATOR = Generator(
    name="rag_static_context",
    title="RAG, stable context",
    story="Every question comes with the same 6,000 tokens of documents, in the same order, in front of the question. The classic case"
    " for a prefix cache: only the question is ever computed.",
    params=(
        REQUESTS,
        TENANTS,
        Param("system_tokens", 300, "tokens of the system prompt, the same for all", 0, 1_000_000),
        Param("context_tokens", 6000, "tokens of the context, one a tenant", 1, 1_000_000),
        Param("question_tokens", 400, "mean tokens of a question with its history", 1, 1_000_000),
        Param("output_tokens", 250, "mean tokens of an answer", 1, 100_000),
        LENGTH_CV,
        *arriving(),
        SALTS,
    ),
    make=make,
)
