"""Few-shot prompts that branch like a tree."""

from __future__ import annotations

from simkv.workload.generators.arrivals import arrivals
from simkv.workload.generators.build import OWN, SHARED, Piece, workload
from simkv.workload.generators.draws import Draws
from simkv.workload.generators.params import LENGTH_CV, REQUESTS, SALTS, TENANTS, Generator, Param, Values, arriving
from simkv.workload.workload import Workload


def make(draws: Draws, v: Values) -> Workload:
    """Prompt = instructions of all + examples of the task + examples of the variant + a question of its own."""
    n, tasks, variants = v["requests"], v["tasks"], v["variants"]
    when = arrivals(draws, n, v)
    task = draws.choices("task", n, tasks, v["skew"])
    leaf = task * variants + draws.choices("variant", n, variants, v["skew"])
    examples = draws.lengths("examples", tasks, v["task_tokens"], v["length_cv"])
    more = draws.lengths("more examples", tasks * variants, v["variant_tokens"], v["length_cv"])
    question = draws.lengths("question", n, v["question_tokens"], v["length_cv"])
    output = draws.lengths("output", n, v["output_tokens"], v["length_cv"])
    pieces = [
        Piece(SHARED, v["root_tokens"]),
        Piece(SHARED + 1 + task, examples[task]),
        Piece(SHARED + 1 + tasks + leaf, more[leaf]),
        Piece(OWN + draws.numbers(n), question),
    ]
    return workload("few_shot_branching", when, pieces, output, tenant=when.user % v["tenants"], tenants=v["tenants"])


GENERATOR = Generator(
    name="few_shot_branching",
    title="Few-shot, branching",
    story="One set of instructions, examples for each task, more examples for each variant, then the question. Prefixes form a tree:"
    " near the root everybody shares, near the leaves few do, and branch points rarely fall on a block's edge.",
    params=(
        REQUESTS,
        TENANTS,
        Param("tasks", 12, "branches of the root", 1, 10_000),
        Param("variants", 5, "branches of every task", 1, 1000),
        Param("skew", 0.7, "how unevenly branches are used (Zipf exponent; 0 = evenly)", 0, 4),
        Param("root_tokens", 700, "tokens of the instructions", 0, 1_000_000),
        Param("task_tokens", 1200, "mean tokens of a task's examples", 1, 1_000_000),
        Param("variant_tokens", 500, "mean tokens of a variant's examples", 1, 1_000_000),
        Param("question_tokens", 80, "mean tokens of a question", 1, 1_000_000),
        Param("output_tokens", 60, "mean tokens of an answer", 1, 100_000),
        LENGTH_CV,
        *arriving(),
        SALTS,
    ),
    make=make,
)
