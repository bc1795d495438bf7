"""Many users, a handful of long system prompts."""

from __future__ import annotations

import numpy as np

from simkv.workload.generators.arrivals import arrivals
from simkv.workload.generators.build import OWN, SHARED, Piece, workload
from simkv.workload.generators.draws import Draws
from simkv.workload.generators.params import LENGTH_CV, REQUESTS, SALTS, Generator, Param, Values, arriving
from simkv.workload.workload import Workload


def make(draws: Draws, v: Values) -> Workload:
    """Prompt = system prompt of the tenant + a question of its own."""
    n = v["requests"]
    when = arrivals(draws, n, v)
    tenant = draws.choices("tenant of user", max(v["users"], 1), v["tenants"], v["skew"])[when.user]
    question = draws.lengths("question", n, v["question_tokens"], v["length_cv"])
    output = draws.lengths("output", n, v["output_tokens"], v["length_cv"])
    system = draws.lengths("system", v["tenants"], v["system_tokens"], 0.0)
    own = OWN + draws.numbers(n)
    prompt = tenant if v["prompts"] == "one a tenant" else np.zeros_like(tenant)
    pieces = [Piece(SHARED + prompt, system[prompt]), Piece(own, question)]
    return workload("shared_system_prompt", when, pieces, output, tenant=tenant, tenants=v["tenants"])


GENERATOR = Generator(
    name="shared_system_prompt",
    title="Shared system prompt",
    story="An assistant with long instructions and tools in front of every question. After the first request of a tenant only the"
    " question is new, so nearly the whole system prompt is found in the cache as long as it stays there.",
    params=(
        REQUESTS,
        Param("tenants", 4, "how many tenants there are", 1, 100_000),
        Param("prompts", "one a tenant", "whose system prompt it is", choices=("one a tenant", "the same for all")),
        Param("skew", 1.0, "how unevenly users belong to tenants (Zipf exponent; 0 = evenly)", 0, 4),
        Param("system_tokens", 2000, "tokens of a system prompt", 0, 1_000_000),
        Param("question_tokens", 150, "mean tokens of a question", 1, 1_000_000),
        Param("output_tokens", 200, "mean tokens of an answer", 1, 100_000),
        LENGTH_CV,
        *arriving(),
        SALTS,
    ),
    make=make,
)
