"""Content of prompts as token ids: synthetic runs written out, text tokenised, explicit requests put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.errors import InputError
from simkv.workload.workload import I4, I8, OUTPUT_SEED, RUN, VOCABULARY

MOST_TOKENS = 500_000_000
"""Token ids written out at once: 2 GB."""
SEED_MASK = 0xFFFF_FFFF
"""A token depends on its seed modulo 2**32."""


def write_out(runs: npt.NDArray[np.void], tokens: I4, name: str) -> tuple[npt.NDArray[np.void], I4]:
    """Every run as explicit token ids, so that equal ids are equal content however they were named.

    Args:
        runs: ``RUN[m]``; negative seeds point into ``tokens``.
        tokens: the ids written out already.
        name: the file, for the error if it would be too much.

    Returns:
        ``(RUN[m], tokens)``: run ``k`` is ``(-1, offset, n)``; consecutive runs lie one behind the other.
    """
    lengths = runs["n"].astype(np.int64)
    total = int(lengths.sum())
    _check_total(total, name)
    offset = np.cumsum(lengths) - lengths
    within = np.arange(total) - np.repeat(offset, lengths)
    seed = np.repeat(runs["seed"], lengths)
    position = within + np.repeat(runs["start"].astype(np.int64), lengths)
    out = np.empty(total, np.int32)
    given = seed < 0
    out[given] = tokens[-1 - seed[given] + position[given]]
    made = ~given
    out[made] = synthetic(seed[made], position[made])
    new = np.zeros(len(runs), RUN)
    new["seed"], new["start"], new["n"] = -1, offset, lengths
    return new, out


def synthetic(seed: npt.NDArray[np.int64], position: npt.NDArray[np.int64]) -> I4:
    """Token ``position`` of content ``seed``, elementwise: the rule of ``synthetic_tokens``."""
    with np.errstate(over="ignore"):
        z = (seed.astype(np.uint64) << np.uint64(32)) + position.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (np.uint64(1) + z % np.uint64(VOCABULARY - 1)).astype(np.int32)


def explicit_requests(prompts: tuple[I4, I8], outputs: tuple[I4, I8], num_output: I8, name: str) -> tuple[npt.NDArray[np.void], I8, I4]:
    """Requests whose tokens are known, one run each: the prompt and behind it the output.

    Args:
        prompts: ``(flat tokens, tokens of each request)``.
        outputs: the same for outputs; where fewer tokens are known than ``num_output`` says, the rest is content of
            its own (``OUTPUT_SEED + i``).
        num_output: tokens each request generates.
        name: the file, for errors.

    Returns:
        ``(RUN[n], first_run[n + 1], tokens)``.
    """
    n = len(num_output)
    prompt, prompt_n = prompts
    output, known = outputs
    total = prompt_n + num_output
    _check_total(int(total.sum()), name)
    start = np.cumsum(total) - total
    tokens = np.empty(int(total.sum()), np.int32)
    tokens[_places(start, prompt_n)] = prompt
    given = np.minimum(known, num_output)
    tokens[_places(start + prompt_n, given)] = output[_places(np.cumsum(known) - known, given)]
    rest = num_output - given
    position = _places(given, rest)
    tokens[_places(start + prompt_n + given, rest)] = synthetic(np.repeat(OUTPUT_SEED + np.arange(n), rest), position)
    runs = np.zeros(n, RUN)
    runs["seed"], runs["start"], runs["n"] = -1, start, total
    return runs, np.arange(n + 1), tokens


def _places(start: I8, count: I8) -> I8:
    """``start[i] … start[i] + count[i] - 1`` for every ``i``, one behind the other."""
    offset = np.cumsum(count) - count
    places: I8 = np.repeat(start - offset, count) + np.arange(int(count.sum()))
    return places


def _check_total(total: int, name: str) -> None:
    if total > MOST_TOKENS:
        raise InputError(f"{total:,} tokens would have to be written out", file=name, expected=f"at most {MOST_TOKENS:,}", hint="Use limit")


Encode = Callable[[Sequence[str]], tuple[I4, I8]]


def encoder(tokenizer: str | None) -> Encode:
    """A function from texts to ``(flat token ids, tokens of each text)``.

    Args:
        tokenizer: path of a ``tokenizer.json`` (read with the optional package ``tokenizers``); ``None`` makes every
            byte of UTF-8 a token, which keeps what is shared and makes lengths about four times a tokenizer's.
    """
    if tokenizer is None or tokenizer == "bytes":
        return _bytes
    path = Path(tokenizer)
    if path.is_dir():
        path = path / "tokenizer.json"
    if not path.is_file():
        raise InputError("no such tokenizer file", file=str(path), expected="the path of a tokenizer.json on this machine, or bytes")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError(
            "the package tokenizers is not installed", hint='Run `pip install "simkv[text]"`, or read the text as bytes'
        ) from None
    try:
        loaded: Any = Tokenizer.from_file(str(path))
    except Exception as e:  # the package raises nothing more specific
        raise InputError(
            f"not a tokenizer file ({e})", file=str(path), expected="a tokenizer.json as Hugging Face models carry it"
        ) from None

    def encode(texts: Sequence[str]) -> tuple[I4, I8]:
        unique = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        done = loaded.encode_batch([_clean(text) for text in unique], add_special_tokens=False)
        ids = [np.array(e.ids, np.int32) for e in done]
        parts = [ids[unique[text]] for text in texts]
        return _joined(parts)

    return encode


def _bytes(texts: Sequence[str]) -> tuple[I4, I8]:
    encoded = [text.encode("utf-8", "replace") for text in texts]
    counts = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return np.frombuffer(b"".join(encoded), np.uint8).astype(np.int32), counts


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _joined(parts: Sequence[I4]) -> tuple[I4, I8]:
    counts = np.fromiter(map(len, parts), np.int64, len(parts))
    return (np.concatenate(parts) if len(parts) else np.zeros(0, np.int32)), counts
