"""Several questions about each long document."""

from __future__ import annotations

from simkv.workload.generators.arrivals import arrivals
from simkv.workload.generators.build import OWN, SHARED, Piece, workload
from simkv.workload.generators.draws import Draws
from simkv.workload.generators.params import LENGTH_CV, REQUESTS, SALTS, TENANTS, Generator, Param, Values, arriving
from simkv.workload.workload import Workload


def make(draws: Draws, v: Values) -> Workload:
    """Prompt = system prompt + document + a question of its own."""
    n = v["requests"]
    when = arrivals(draws, n, v)
    # A window of open documents moves over all documents: request i asks about one of the documents open at its time.
    slot = draws.numbers(n)
    shuffled = draws.stream("document").random(n) * v["open_documents"]
    document = (slot // v["questions"] + shuffled.astype(int)).astype(slot.dtype)
    documents = int(document.max()) + 1
    length = draws.lengths("documents", documents, v["document_tokens"], v["document_cv"])
    question = draws.lengths("question", n, v["question_tokens"], v["length_cv"])
    output = draws.lengths("output", n, v["output_tokens"], v["length_cv"])
    pieces = [Piece(SHARED, v["system_tokens"]), Piece(SHARED + 1 + document, length[document]), Piece(OWN + slot, question)]
    return workload("long_document_qa", when, pieces, output, tenant=document % v["tenants"], tenants=v["tenants"])


GENERATOR = Generator(
    name="long_document_qa",
    title="Long-document questions",
    story="Somebody opens a long contract or paper and asks one question after another; several documents are open at once. The"
    " first question pays for the whole document, the others find it, as long as the open documents fit in the cache together.",
    params=(
        REQUESTS,
        TENANTS,
        Param("questions", 12, "questions asked about a document, on average", 1, 100_000),
        Param("open_documents", 6, "documents asked about at the same time", 1, 10_000),
        Param("system_tokens", 200, "tokens of the system prompt, the same for all", 0, 1_000_000),
        Param("document_tokens", 20_000, "mean tokens of a document", 1, 1_000_000),
        Param("document_cv", 0.4, "spread of the documents' lengths (standard deviation / mean)", 0, 3),
        Param("question_tokens", 60, "mean tokens of a question", 1, 1_000_000),
        Param("output_tokens", 200, "mean tokens of an answer", 1, 100_000),
        LENGTH_CV,
        *arriving(rate=1.0, users=8),
        SALTS,
    ),
    make=make,
)
