"""What the workers are called where a rule hashes or sorts their addresses."""

from __future__ import annotations


def worker_url(slot: int) -> str:
    """The address of a worker: ``http://10.0.0.1:8000`` for slot 0, one further each. A slot keeps its address for the whole run."""
    return f"http://10.0.{(slot + 1) // 256}.{(slot + 1) % 256}:8000"


def worker_urls(workers: int) -> list[str]:
    """The addresses of slots ``0 … workers - 1``."""
    return [worker_url(slot) for slot in range(workers)]
