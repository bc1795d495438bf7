"""How much of reserved KV memory holds token states, from the lengths of requests alone (PagedAttention, SOSP'23, figure 2).

Definition. A request with a prompt of p tokens and an output of o tokens lives o steps and holds p + t tokens after step t
(t = 0 … o-1; the last token is never written). Every request counts, every step of it counts the same, and nothing depends on
how many run at once: shares are sums over all requests and steps of what is held. Free memory is not part of it.

*states* are those tokens; *reserved* the room the request's own remaining tokens will take; *internal* what was asked for and
never used; *rounding* what a buddy allocator adds to reach a power of two (the paper counts it as external fragmentation).

Unlike the engine, pow2 is not cut off at the model's longest sequence here: 100 tokens of prompt and 1,100 of output ask for
100 + 2,048.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from simkv.engine.contiguous.resolve import asked_tokens, power_of_two
from simkv.errors import InputError

I8 = npt.NDArray[np.int64]
BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
PAPER = {"max": 0.204, "pow2": 0.268, "oracle": 0.382, "paged 16": 0.963}
"""Token states in figure 2 of the paper: Orca (Max), Orca (Pow2), Orca (Oracle), vLLM."""
MIN_TOKENS, MAX_PROMPT, MAX_TOTAL = 4, 1024, 2048
"""Requests vLLM's benchmark keeps of ShareGPT: prompt and output of at least 4, a prompt of at most 1024, 2048 in all."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of held memory; the four parts sum to 1. ``scheme`` in words; ``paper`` the published share of states."""

    scheme: str
    states: float
    reserved: float
    internal: float
    rounding: float
    paper: float | None = None

    def to_mapping(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def benchmark_sample(num_prompt: I8, num_output: I8) -> tuple[I8, I8]:
    """The requests vLLM's benchmark would keep."""
    keep = (num_prompt >= MIN_TOKENS) & (num_output >= MIN_TOKENS) & (num_prompt <= MAX_PROMPT) & (num_prompt + num_output <= MAX_TOTAL)
    return num_prompt[keep], num_output[keep]


def contiguous(num_prompt: I8, num_output: I8, reservation: str, *, buddy: bool, max_model_len: int) -> Shares:
    """Shares with one piece a request.

    Args:
        num_prompt, num_output: tokens, outputs of at least 1, shape ``[n]``.
        reservation: ``max`` (reserves ``max_model_len``), ``pow2`` or ``oracle``.
        buddy: pieces are rounded up to powers of two.

    Raises:
        InputError: no request, or one longer than ``max`` reserves.
    """
    p, o = _checked(num_prompt, num_output)
    if reservation == "max" and int((p + o).max()) > max_model_len:
        longest = int((p + o).max())
        raise InputError(f"a request has {longest:,} tokens", expected=f"at most max_model_len={max_model_len:,}", hint="Raise it")
    asked = asked_tokens(reservation, p, o, max_model_len if reservation == "max" else None)
    piece = power_of_two(asked) if buddy else asked
    whole = int((o * piece).sum())
    return Shares(
        f"{reservation}, {'buddy' if buddy else 'exact'}",
        _states(p, o) / whole,
        (int((o * (p + o)).sum()) - _states(p, o)) / whole,
        int((o * (asked - p - o)).sum()) / whole,
        int((o * (piece - asked)).sum()) / whole,
        PAPER[reservation] if buddy else None,
    )


def paged(num_prompt: I8, num_output: I8, block_size: int) -> Shares:
    """Shares with blocks of ``block_size`` tokens taken as they are needed: only the last block of a request is not full.

    Raises:
        InputError: no request.
    """
    p, o = _checked(num_prompt, num_output)
    whole = int((block_size * (_blocks_up_to(p + o - 1, block_size) - _blocks_up_to(p - 1, block_size))).sum())
    last = -(-(p + o) // block_size)
    # Steps at which the request's final block is already there, and its tokens beyond the request's end.
    steps_in_last = np.minimum(o, p + o - 1 - (last - 1) * block_size)
    internal = int((steps_in_last * (last * block_size - p - o)).sum())
    states = _states(p, o)
    return Shares(
        f"paged, block {block_size}",
        states / whole,
        (whole - states - internal) / whole,
        internal / whole,
        0.0,
        PAPER.get(f"paged {block_size}"),
    )


def figure_2(num_prompt: I8, num_output: I8, *, max_model_len: int, block_sizes: Sequence[int] = BLOCK_SIZES) -> list[Shares]:
    """The paper's four bars, oracle lengths without buddy rounding, and paged memory for several block sizes."""
    pieces = [contiguous(num_prompt, num_output, name, buddy=True, max_model_len=max_model_len) for name in ("max", "pow2", "oracle")]
    exact = contiguous(num_prompt, num_output, "oracle", buddy=False, max_model_len=max_model_len)
    return [*pieces, exact, *(paged(num_prompt, num_output, size) for size in block_sizes)]


def _checked(num_prompt: I8, num_output: I8) -> tuple[I8, I8]:
    p, o = num_prompt.astype(np.int64), num_output.astype(np.int64)
    if not len(p):
        raise InputError("no request is left to look at", hint="Use --all to keep short and long requests too")
    if int(p.min()) < 1 or int(o.min()) < 1:
        raise InputError("a request without prompt or output", expected="at least one token of each")
    return p, o


def _states(p: I8, o: I8) -> int:
    """Sum over all requests and steps of the tokens held."""
    return int((o * p + o * (o - 1) // 2).sum())


def _blocks_up_to(n: I8, size: int) -> I8:
    """Sum of ceil(k / size) for k = 1 … n."""
    full, rest = n // size, n % size
    return size * full * (full + 1) // 2 + rest * (full + 1)
