import threading

import pytest

from simkv.errors import InputError
from simkv.ui.config import Config, cost
from simkv.ui.run_store import Job, RunStore


class Result:
    nbytes = 100


def work(job: Job) -> Result:
    return Result()


def config(name: str) -> Config:
    return Config("trace", name)


def ended(store: RunStore, name: str, work=work) -> Job:  # type: ignore[no-untyped-def]
    job = store.start(config(name), work)
    assert job.done.wait(10)
    return job


def test_equal_questions_share_one_run() -> None:
    store = RunStore()
    assert ended(store, "a") is ended(store, "a")
    assert ended(store, "a") is not ended(store, "b")


def test_old_runs_are_thrown_out() -> None:
    store = RunStore(max_runs=3)
    for name in "abcde":
        ended(store, name)
    assert len(store) <= 3
    assert store.get(config("e").digest) is not None
    assert store.get(config("a").digest) is None


def test_big_runs_are_thrown_out_sooner() -> None:
    store = RunStore(max_runs=50, max_bytes=250)
    for name in "abcdef":
        ended(store, name)
    assert len(store) <= 4


def test_failures_end_as_sentences_and_are_tried_again() -> None:
    store = RunStore()

    def bad_input(job: Job) -> Result:
        raise InputError("output_length is -3", file="x.jsonl", line=7)

    def bug(job: Job) -> Result:
        raise IndexError("surprise")

    first = ended(store, "a", bad_input)
    assert "x.jsonl, line 7" in str(first.error)
    assert "error of simkv itself (IndexError: surprise)" in str(ended(store, "b", bug).error)
    assert ended(store, "a").error is None


def test_a_replay_nobody_waits_for_is_cancelled() -> None:
    store, go = RunStore(), threading.Event()

    def slow(job: Job) -> Result:
        go.wait(10)
        return Result()

    job = store.start(config("a"), slow, "me")
    store.start(config("a"), slow, "you")
    store.leave(config("a").digest, "me")
    assert not job.cancelled.is_set()
    store.leave(config("a").digest, "you")
    assert job.cancelled.is_set()
    assert store.get(config("a").digest) is None
    go.set()


def test_progress_says_how_long() -> None:
    job = Job(config("a"), work)  # type: ignore[arg-type]
    assert job.left_s is None

    class P:
        simulated_s, finished, requests, fraction = 60.0, 5, 10, 0.5

    assert job.report(P()) is True
    assert job.left_s == pytest.approx(job.elapsed_s, rel=0.5)
    job.cancelled.set()
    assert job.report(P()) is False


def test_digest_covers_everything_asked() -> None:
    base = Config("trace", "a")
    others = [
        Config("trace", "b"),
        Config("upload", "a", content="1"),
        Config("upload", "a", content="2"),
        Config("trace", "a", limit=10),
        Config("trace", "a", salts="off"),
        Config("trace", "a", settings=base.settings.replace(block_size=32)),
        Config("generator", "a", (("seed", 1),)),
    ]
    assert len({c.digest for c in [base, *others]}) == len(others) + 1
    assert Config("trace", "a", salts="off").source_digest == base.source_digest


def test_cost_grows_with_tokens() -> None:
    from simkv.workload.generators import generate

    few, many = (generate("shared_system_prompt", requests=n) for n in (100, 2000))
    assert 0 < cost(few, Config("", "").settings) < cost(many, Config("", "").settings) < 1
