"""Agents that call tools: short pauses, sometimes a very long one."""

from __future__ import annotations

import numpy as np

from simkv.workload.generators.draws import Draws
from simkv.workload.generators.params import LENGTH_CV, REQUESTS, SALTS, TENANTS, Generator, Param, Values, arriving
from simkv.workload.generators.sessions import PACING, conversations, turns
from simkv.workload.workload import Workload


def make(draws: Draws, v: Values) -> Workload:
    """Prompt = instructions and tools + all steps so far + the newest tool result."""
    n, cv = v["requests"], v["length_cv"]
    steps = turns(draws, n, v["steps"], v["steps_cv"])
    task = draws.lengths("task", n, v["task_tokens"], cv)
    result = draws.lengths("result", n, v["result_tokens"], cv)
    waits = draws.stream("waits for a person").random(n) < v["long_share"]
    pause = np.where(waits, draws.pauses("person", n, v["long_pause_s"]), draws.pauses("tool", n, v["tool_s"]))
    return conversations(
        "agents_with_pauses",
        draws,
        v,
        steps,
        shared=v["system_tokens"],
        fresh=np.where(steps.first, task, result),
        output=draws.lengths("output", n, v["output_tokens"], cv),
        pause=pause,
    )


GENERATOR = Generator(
    name="agents_with_pauses",
    title="Agents with pauses",
    story="Coding or research agents: long instructions, dozens of steps, each sending everything again. Tool calls last seconds,"
    " but now and then an agent waits minutes for a person, and by then others may have taken its blocks.",
    params=(
        REQUESTS,
        TENANTS,
        Param("steps", 20.0, "mean requests of an agent's run", 1, 1000),
        Param("steps_cv", 0.7, "spread of the number of steps (standard deviation / mean)", 0, 3),
        Param("system_tokens", 6000, "tokens of instructions and tools, one set a tenant", 0, 1_000_000),
        Param("task_tokens", 1500, "mean tokens of the task", 1, 1_000_000),
        Param("result_tokens", 700, "mean tokens of a tool's result", 1, 1_000_000),
        Param("output_tokens", 150, "mean tokens of a step's answer", 1, 100_000),
        LENGTH_CV,
        Param("tool_s", 3.0, "mean seconds of a tool call", 0, 1e6),
        Param("long_share", 0.05, "share of steps that wait for a person instead", 0, 1),
        Param("long_pause_s", 300.0, "mean seconds of such a wait", 0, 1e6),
        PACING,
        *arriving(),
        SALTS,
    ),
    make=make,
)
