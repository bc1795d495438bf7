"""How much KV memory the sequences of one request save by sharing blocks (PagedAttention, SOSP'23, figure 15).

Definition. Saved is 1 - blocks in use / blocks the block tables would need if no two sequences shared one, both summed over
all steps of the replay, each step weighted with its duration. Requests share nothing with each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from simkv.engine.step_time import roofline
from simkv.engine.vllm_v0.engine import V0Engine
from simkv.engine.vllm_v0.parentage import Parentage
from simkv.engine.vllm_v0.resolve import resolve
from simkv.errors import InputError
from simkv.settings import V0Settings
from simkv.workload.generators.arrivals import poisson
from simkv.workload.generators.draws import Draws
from simkv.workload.workload import RUN, Workload

I8 = npt.NDArray[np.int64]
PAPER = {
    "parallel sampling": {"Alpaca": (0.061, 0.098), "ShareGPT": (0.162, 0.305)},
    "beam search": {"Alpaca": (0.376, 0.552), "ShareGPT": (0.443, 0.663)},
}
"""Published shares (OPT-13B on one A100), lowest and highest over 2, 4 and 6 sequences."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """What one replay saved.

    Args:
        method: ``parallel sampling`` or ``beam search``.
        width: sequences of a request.
        resampling: beam_resampling; ``None`` for samples and for recorded parents.
        saved: share of blocks saved, over time; ``None`` where no step took time.
        copies, forks: blocks copied on write, sequences forked, each per request.
        preemptions: groups preempted, in all.
    """

    method: str
    width: int
    resampling: float | None
    saved: float | None
    copies: float
    forks: float
    preemptions: int

    def to_mapping(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def lengths_workload(num_prompt: I8, num_output: I8, rate: float, seed: int) -> Workload:
    """Requests of these lengths that share nothing, as a Poisson process of ``rate`` per second. Raises InputError for none."""
    n = len(num_prompt)
    if not n or int(num_prompt.min()) < 1 or int(num_output.min()) < 1:
        raise InputError("no request with a prompt and an output", hint="Sharing is measured over requests that generate something")
    runs = np.zeros(n, RUN)
    runs["seed"], runs["n"] = np.arange(n), num_prompt + num_output
    when = poisson(Draws(seed), n, rate)
    return Workload("lengths", "lengths", when, num_prompt.astype(np.int32), num_output.astype(np.int32), np.arange(n + 1), runs)


def measure(workload: Workload, settings: V0Settings, parents: Parentage | None = None) -> Sharing:
    """Replay ``workload`` with V0 and say what sharing saved.

    Raises:
        SettingsError: what the engine refuses at start-up.
        EngineError: host memory ran out of room for swapped requests.
        InputError: recorded parents that do not fit.
    """
    engine = V0Engine(workload, resolve(settings, workload), roofline(settings).record(), log=False, parents=parents)
    engine.advance()
    c, n = engine.counters, len(workload)
    drawn = settings.use_beam_search and parents is None
    return Sharing(
        method="beam search" if settings.use_beam_search else "parallel sampling",
        width=settings.width,
        resampling=settings.beam_resampling if drawn else None,
        saved=engine.sharing()["over_time"],
        copies=int(c.copies) / n,
        forks=int(c.forks) / n,
        preemptions=int(c.preemptions),
    )


def sweep(
    workload: Workload, settings: V0Settings, samples: Iterable[int], beams: Iterable[int], resampling: Iterable[float]
) -> list[Sharing]:
    """One replay for each number of samples, and one for each beam width and each resampling."""
    plain = settings.replace(n=1, best_of=None, use_beam_search=False)
    out = [measure(workload, plain.replace(best_of=width)) for width in samples]
    chances = list(resampling)
    for width in beams:
        out += [measure(workload, plain.replace(best_of=width, use_beam_search=True, beam_resampling=chance)) for chance in chances]
    return out
