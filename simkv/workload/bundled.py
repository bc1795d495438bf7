"""The real traces that come with simkv (origin and licence of each: scenarios/data/README.md)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
FILES = {
    "mooncake_conversation": "mooncake/conversation_trace.jsonl.gz",
    "mooncake_synthetic": "mooncake/synthetic_trace.jsonl.gz",
    "azure_code_2023": "azure/AzureLLMInferenceTrace_code_2023.csv.gz",
    "azure_conv_2023": "azure/AzureLLMInferenceTrace_conv_2023.csv.gz",
    "ragpulse": "ragpulse",
    "claude_code": "claude_code",
    "lmcache_miniswe": "lmcache_agent/miniswe.jsonl.gz",
    "lmcache_taubench": "lmcache_agent/taubench.jsonl.gz",
    "sharegpt_lengths": "sharegpt/lengths_sample2000.jsonl.gz",
}
NAMES_OF: dict[str, tuple[str, ...]] = {
    "tenant": (),
    "session": ("ragpulse", "claude_code", "lmcache_miniswe", "lmcache_taubench", "sharegpt_lengths"),
}
"""The bundled traces that say which tenant, or which session, a request belongs to."""


def data_folder() -> Path | None:
    """Where the bundled data lie: beside the package in the repository, inside it once installed."""
    for folder in (PACKAGE.parent / "scenarios" / "data", PACKAGE / "_scenarios" / "data"):
        if folder.is_dir():
            return folder
    return None


@cache
def bundled() -> dict[str, Path]:
    """Name and path (a file, or a folder for formats of several files) of every bundled trace that is there."""
    folder = data_folder()
    return {} if folder is None else {name: folder / file for name, file in FILES.items() if (folder / file).exists()}
