"""Interactive chat, and a batch job that reads a pile of documents through the same replica."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simkv.workload.generators.arrivals import Arrivals, arrivals
from simkv.workload.generators.build import OWN, SHARED, Piece, workload
from simkv.workload.generators.draws import MICRO, Draws
from simkv.workload.generators.params import LENGTH_CV, REQUESTS, SALTS, Generator, Param, Values, arriving
from simkv.workload.workload import F8, I8, Workload

NAMES = ("chat", "batch job")


def make(draws: Draws, v: Values) -> Workload:
    """Chat: system prompt of the assistant + a question. Job: a document that nobody asks about again."""
    n = v["requests"]
    jobs = min(round(n * v["job_share"]), n - 1)
    chats = n - jobs
    when = arrivals(draws, chats, v)
    job_at = v["job_start_s"] + np.rint(np.arange(jobs) / v["job_rate"] * MICRO) / MICRO
    merged, source = _merge(when, job_at)
    chat, job = source < chats, source >= chats
    assistant = draws.choices("assistant", chats, v["assistants"], v["skew"])
    question = draws.lengths("question", chats, v["question_tokens"], v["length_cv"])
    answer = draws.lengths("output", chats, v["output_tokens"], v["length_cv"])
    document = draws.lengths("document", jobs, v["document_tokens"], v["length_cv"])
    summary = draws.lengths("summary", jobs, v["summary_tokens"], v["length_cv"])
    which = np.zeros(n, np.int64)
    which[chat] = assistant[source[chat]]
    pieces = [
        Piece(SHARED + which, np.where(chat, v["system_tokens"], 0).astype(np.int64)),
        Piece(OWN + source, np.concatenate([question, document])[source]),
    ]
    output = np.concatenate([answer, summary])[source]
    made = workload("chat_and_batch_job", merged, pieces, output, tenant=job.astype(np.int64), tenants=len(NAMES))
    return replace(made, tenants=NAMES)


def _merge(when: Arrivals, job_at: F8) -> tuple[Arrivals, I8]:
    """Both kinds in order of arrival, and which one each is: below the number of chats a chat, else a request of the job.

    Chats that wait for an answer come last: they follow their predecessor, and no time is known for them.
    """
    chats = len(when.arrive)
    number = np.arange(chats + len(job_at), dtype=np.int64)
    time = np.concatenate([when.arrive, job_at])
    chained = np.zeros(len(number), np.bool_)
    if when.after is not None:
        chained[:chats] = when.after >= 0
    source = np.concatenate([number[~chained][np.argsort(time[~chained], kind="stable")], number[chained]])
    user = np.concatenate([when.user, np.full(len(job_at), when.user.max() + 1)])
    if when.after is None:
        return Arrivals(time[source], None, user[source]), source
    place = np.empty_like(source)
    place[source] = number
    after = np.concatenate([when.after, np.full(len(job_at), -1)])[source]
    return Arrivals(time[source], np.where(after >= 0, place[after], -1), user[source]), source


GENERATOR = Generator(
    name="chat_and_batch_job",
    title="Chat and a batch job",
    story="People ask assistants with long system prompts; one night job reads a pile of documents through the same replica. Nobody asks"
    " about these documents again, yet each takes the place of a prompt that would have come back.",
    params=(
        REQUESTS,
        Param("assistants", 20, "how many system prompts there are", 1, 10_000),
        Param("skew", 0.6, "how unevenly assistants are used (Zipf exponent; 0 = evenly)", 0, 4),
        Param("system_tokens", 3000, "tokens of a system prompt", 0, 1_000_000),
        Param("question_tokens", 150, "mean tokens of a question", 1, 1_000_000),
        Param("output_tokens", 120, "mean tokens of an answer", 1, 100_000),
        Param("job_share", 0.2, "share of the requests that the job sends", 0, 1),
        Param("job_start_s", 120.0, "when the job starts, seconds", 0, 1e7),
        Param("job_rate", 2.0, "requests per second of the job, evenly spaced", 1e-3, 1e5),
        Param("document_tokens", 8000, "mean tokens of a document", 1, 1_000_000),
        Param("summary_tokens", 60, "mean tokens of what the job wants to know", 1, 100_000),
        LENGTH_CV,
        *arriving(),
        SALTS,
    ),
    make=make,
)
