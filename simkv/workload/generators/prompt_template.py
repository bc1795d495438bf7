"""One prompt template, with something in it that changes: nowhere, in front, or at the end."""

from __future__ import annotations

import numpy as np

from simkv.workload.generators.arrivals import arrivals
from simkv.workload.generators.build import OWN, SHARED, Piece, workload
from simkv.workload.generators.draws import Draws
from simkv.workload.generators.params import LENGTH_CV, REQUESTS, SALTS, TENANTS, Generator, Param, Values, arriving
from simkv.workload.workload import F8, I8, Workload

STAMP = OWN << 1
"""Contents of the changing field are numbered from here, behind those of the questions."""


def make(draws: Draws, v: Values) -> Workload:
    """Prompt = [field] + instructions of all + [field] + a question of its own."""
    n = v["requests"]
    when = arrivals(draws, n, v)
    question = draws.lengths("question", n, v["question_tokens"], v["length_cv"])
    output = draws.lengths("output", n, v["output_tokens"], v["length_cv"])
    field = _field(v, draws.numbers(n), when.arrive)
    tokens = 0 if v["field"] == "none" else v["field_tokens"]
    front = tokens if v["place"] == "in front" else 0
    pieces = [
        Piece(field, front),
        Piece(SHARED, v["instruction_tokens"]),
        Piece(field, tokens - front),
        Piece(OWN + draws.numbers(n), question),
    ]
    return workload("prompt_template", when, pieces, output, tenant=when.user % v["tenants"], tenants=v["tenants"])


def _field(v: Values, number: I8, arrive: F8) -> I8:
    """Content of the field of each request: equal numbers are equal tokens."""
    if v["field"] == "timestamp" and v["arrivals"] != "closed loop":
        moment: I8 = np.floor(arrive / v["stamp_s"]).astype(np.int64)
        return STAMP + moment
    return STAMP + number


GENERATOR = Generator(
    name="prompt_template",
    title="One prompt template",
    story="Everybody's prompt is made from the same template. A request id or the time of day in front of the instructions makes each"
    " prompt another one from its first token on; at the end, in front of the question, it costs nothing.",
    params=(
        REQUESTS,
        TENANTS,
        Param("instruction_tokens", 2000, "tokens of the instructions, the same for all", 0, 1_000_000),
        Param(
            "field",
            "request id",
            "what changes in the template (timestamp: at a time not known beforehand, as in a closed loop, it is new every time)",
            choices=("none", "request id", "timestamp"),
        ),
        Param("place", "in front", "where the field stands", choices=("in front", "behind the instructions")),
        Param("field_tokens", 24, "tokens of the field", 1, 100_000),
        Param("stamp_s", 1.0, "timestamp: seconds during which it stays the same", 1e-3, 1e6),
        Param("question_tokens", 150, "mean tokens of a question", 1, 1_000_000),
        Param("output_tokens", 150, "mean tokens of an answer", 1, 100_000),
        LENGTH_CV,
        *arriving(),
        SALTS,
    ),
    make=make,
)
