"""Chats of several turns over a short system prompt."""

from __future__ import annotations

from simkv.workload.generators.draws import Draws
from simkv.workload.generators.params import LENGTH_CV, REQUESTS, SALTS, TENANTS, Generator, Param, Values, arriving
from simkv.workload.generators.sessions import PACING, conversations, turns
from simkv.workload.workload import Workload


def make(draws: Draws, v: Values) -> Workload:
    """Prompt = system prompt + all turns and answers so far + the new turn."""
    n, cv = v["requests"], v["length_cv"]
    return conversations(
        "multi_turn_chat",
        draws,
        v,
        turns(draws, n, v["turns"], v["turns_cv"]),
        shared=v["system_tokens"],
        fresh=draws.lengths("turn", n, v["turn_tokens"], cv),
        output=draws.lengths("output", n, v["output_tokens"], cv),
        pause=draws.pauses("think", n, v["think_s"]),
    )


GENERATOR = Generator(
    name="multi_turn_chat",
    title="Multi-turn chat",
    story="People chat; every turn sends the whole conversation again. All but the newest turn can be found in the cache, if"
    " the conversation survives in it until its user has read the answer and typed the next question.",
    params=(
        REQUESTS,
        TENANTS,
        Param("turns", 5.0, "mean turns of a chat", 1, 1000),
        Param("turns_cv", 0.8, "spread of the number of turns (standard deviation / mean)", 0, 3),
        Param("system_tokens", 400, "tokens of the system prompt, one a tenant", 0, 1_000_000),
        Param("turn_tokens", 120, "mean tokens a user types", 1, 1_000_000),
        Param("output_tokens", 250, "mean tokens of an answer", 1, 100_000),
        LENGTH_CV,
        PACING,
        *arriving(think=Param("think_s", 30.0, "mean seconds between an answer and the next turn", 0, 1e6)),
        SALTS,
    ),
    make=make,
)
