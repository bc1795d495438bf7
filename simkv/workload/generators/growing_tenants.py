"""More and more tenants: a working set that outgrows the pool."""

from __future__ import annotations

import numpy as np

from simkv.errors import SettingsError
from simkv.workload.generators.arrivals import arrivals
from simkv.workload.generators.build import OWN, SHARED, Piece, workload
from simkv.workload.generators.draws import Draws
from simkv.workload.generators.params import LENGTH_CV, REQUESTS, SALTS, Generator, Param, Values, arriving
from simkv.workload.workload import Workload


def make(draws: Draws, v: Values) -> Workload:
    """Prompt = context of one of the tenants there are by now + a question of its own."""
    n, first, last = v["requests"], v["tenants_at_start"], v["tenants"]
    if first > last:
        raise SettingsError("tenants_at_start", first, f"at most tenants={last}")
    when = arrivals(draws, n, v)
    number = draws.numbers(n)
    there = first + (last - first) * number // max(round(n * v["growth_share"]), 1)
    tenant = (draws.stream("tenant").random(n) * np.minimum(there, last)).astype(np.int64)
    question = draws.lengths("question", n, v["question_tokens"], v["length_cv"])
    output = draws.lengths("output", n, v["output_tokens"], v["length_cv"])
    pieces = [Piece(SHARED + tenant, v["context_tokens"]), Piece(OWN + number, question)]
    return workload("growing_tenants", when, pieces, output, tenant=tenant, tenants=last)


GENERATOR = Generator(
    name="growing_tenants",
    title="Growing tenants",
    story="Customer after customer is switched on, each with a long context of its own. At first all contexts fit and the hit rate is"
    " high; once they do not fit together, each request evicts what another will need, and the rate sinks for good.",
    params=(
        REQUESTS,
        Param("tenants_at_start", 4, "tenants when the run begins", 1, 100_000),
        Param("tenants", 150, "tenants in the end", 1, 100_000),
        Param("growth_share", 0.8, "share of the requests during which tenants are added, evenly", 0.01, 1),
        Param("context_tokens", 6000, "tokens of a tenant's context", 1, 1_000_000),
        Param("question_tokens", 150, "mean tokens of a question", 1, 1_000_000),
        Param("output_tokens", 150, "mean tokens of an answer", 1, 100_000),
        LENGTH_CV,
        *arriving(),
        SALTS,
    ),
    make=make,
)
