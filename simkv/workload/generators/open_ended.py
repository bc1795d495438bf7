"""Prompts that have nothing in common."""

from __future__ import annotations

from simkv.workload.generators.arrivals import arrivals
from simkv.workload.generators.build import OWN, SHARED, Piece, workload
from simkv.workload.generators.draws import Draws
from simkv.workload.generators.params import LENGTH_CV, REQUESTS, SALTS, TENANTS, Generator, Param, Values, arriving
from simkv.workload.workload import Workload


def make(draws: Draws, v: Values) -> Workload:
    """Prompt = a few tokens of chat template + a text of its own."""
    n = v["requests"]
    when = arrivals(draws, n, v)
    prompt = draws.lengths("prompt", n, v["prompt_tokens"], v["length_cv"])
    output = draws.lengths("output", n, v["output_tokens"], v["length_cv"])
    pieces = [Piece(SHARED, v["template_tokens"]), Piece(OWN + draws.numbers(n), prompt)]
    return workload("open_ended", when, pieces, output, tenant=when.user % v["tenants"], tenants=v["tenants"])


GENERATOR = Generator(
    name="open_ended",
    title="Open-ended",
    story="Stories, translations, one-off questions: every prompt is new but for the chat template. A prefix cache finds next to"
    " nothing here, whatever its size.",
    params=(
        REQUESTS,
        TENANTS,
        Param("template_tokens", 20, "tokens all prompts begin with", 0, 1_000_000),
        Param("prompt_tokens", 500, "mean tokens of a prompt", 1, 1_000_000),
        Param("output_tokens", 400, "mean tokens of an answer", 1, 100_000),
        LENGTH_CV,
        *arriving(),
        SALTS,
    ),
    make=make,
)
