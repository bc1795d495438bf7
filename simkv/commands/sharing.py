"""``simkv sharing``: KV memory that parallel samples and beams save by sharing blocks."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from simkv.commands import OK, source
from simkv.commands.text import NO_DATA, percent, table, visible, whole
from simkv.errors import SettingsError
from simkv.plain import to_json

if TYPE_CHECKING:
    from simkv.planning.sharing import Sharing
    from simkv.workload.workload import Workload

T = TypeVar("T", int, float)

EPILOG = """\
examples:
  simkv sharing sharegpt_lengths                     figure 15 of the PagedAttention paper
  simkv sharing 'generator:open_ended?requests=2000&template_tokens=0&prompt_tokens=19&output_tokens=58&length_cv=1'
                                                     lengths with the means of Alpaca
  simkv sharing sharegpt_lengths --beam 4 --parents parents.jsonl

Saved is 1 - blocks in use / blocks without sharing, over time. The engine is vLLM V0 (0.2.7): prompt blocks are shared, a shared
last block is copied when it is written. All sequences of a request generate its output length. Which beams survive is drawn: each
candidate descends from its own beam or, with the chance of --resampling, from a random one; --parents gives recorded ones instead:
one JSON line for each request, a list with, for each output token but the first, the beams that the 2 K candidates continue.
Of ShareGPT the first two messages of each chat are taken as prompt and output, and of any source the requests that vLLM's
benchmark keeps: both at least 4 tokens, the prompt at most 1024, together at most 2048."""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "sharing",
        help="KV memory saved by sharing blocks between parallel samples and between beams",
        description="How much KV memory the sequences of one request save by sharing blocks.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source.add_arguments(parser)
    what = parser.add_argument_group("what to replay")
    what.add_argument("--n", default="2,4,6", metavar="N,N,…", help="parallel samples (default 2,4,6; an empty text for none)")
    what.add_argument("--beam", default="2,4,6", metavar="K,K,…", help="beam widths (default 2,4,6)")
    what.add_argument("--resampling", default="0.02,0.1,0.5", metavar="P,P,…", help="beam_resampling, each tried with each width")
    what.add_argument("--parents", metavar="FILE", help="recorded beam parentage of the requests, for one beam width")
    what.add_argument("--rate", type=float, default=4.0, metavar="R", help="requests per second, a Poisson process (default 4)")
    what.add_argument("--all", action="store_true", help="keep every request that has a prompt and an output")
    what.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="pairs", help="a setting of vLLM V0: model, gpu, block_size, …"
    )
    what.add_argument("--json", action="store_true", help="everything as JSON on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay and compare. Returns 0."""
    from simkv.planning.sharing import PAPER, measure, sweep
    from simkv.settings import V0Settings

    samples, beams = numbers("n", args.n, int), numbers("beam", args.beam, int)
    chances = numbers("resampling", args.resampling, float)
    settings = V0Settings().with_pairs(args.pairs)
    workload = _workload(args)
    if args.parents is None:
        found = sweep(workload, settings, samples, beams, chances)
    else:
        if len(beams) != 1:
            raise SettingsError("beam", args.beam, "one width, that of the recorded parents")
        found = sweep(workload, settings, samples, (), ())
        found.append(measure(workload, settings.replace(n=1, best_of=beams[0], use_beam_search=True), _parents(args.parents)))
    if args.json:
        lengths = {"requests": len(workload), "mean_prompt": workload.num_prompt.mean(), "mean_output": workload.num_output.mean()}
        print(to_json({"source": args.source, **lengths, "saved": [f.to_mapping() for f in found], "paper": PAPER}))
    else:
        print(visible(report(args.source, workload, found)))
    return OK


def report(name: str, workload: Workload, found: list[Sharing]) -> str:
    """The table and the published figures."""
    from simkv.planning.sharing import PAPER

    rows = [
        (
            f.method,
            f.width,
            NO_DATA if f.resampling is None else f"{f.resampling:g}",
            percent(f.saved),
            f"{f.copies:,.1f}",
            f"{f.forks:,.1f}",
        )
        for f in found
    ]
    lines = [
        f"{name}: {whole(len(workload))} requests, in the mean {workload.num_prompt.mean():.1f} tokens of prompt and"
        f" {workload.num_output.mean():.1f} of output.",
        "",
        table(rows, ("method", "sequences", "resampling", "saved", "copies a request", "forks a request")),
        "",
    ]
    for method, ranges in PAPER.items():
        said = ", ".join(f"{data} {percent(low)} to {percent(high)}" for data, (low, high) in ranges.items())
        lines.append(f"In the paper, {method} with 2 to 6 sequences: {said}.")
    preempted = sum(f.preemptions for f in found)
    if preempted:
        lines.append(f"{whole(preempted)} preemptions happened: what swapped requests share is not counted. A lower --rate avoids them.")
    return "\n".join(lines)


def numbers(name: str, text: str, make: Callable[[str], T]) -> list[T]:
    """``2,4,6`` as numbers; an empty text is none. Raises SettingsError for anything else."""
    parts = [part.strip() for part in text.split(",") if text.strip()]
    if not all(re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,9})?", part) and (make is float or "." not in part) for part in parts):
        raise SettingsError(name, text, "numbers with commas between them")
    return [make(part) for part in parts]


def _parents(path: str) -> Any:
    from simkv.engine.vllm_v0.parentage import read_parentage

    return read_parentage(Path(path).expanduser())


def _workload(args: argparse.Namespace) -> Workload:
    """Requests of the source's lengths that share nothing."""
    import math

    import numpy as np

    from simkv.planning.kv_waste import benchmark_sample
    from simkv.planning.sharing import lengths_workload
    from simkv.workload.source import FILE_LIMIT, Source
    from simkv.workload.traces.sharegpt_lengths import first_pairs

    if not (math.isfinite(args.rate) and args.rate > 0):
        raise SettingsError("rate", args.rate, "requests per second, more than 0")
    workload = source.open_source(args)
    if workload.format == "sharegpt-lengths":
        prompt, output = first_pairs(Source.from_path(source.path_of(args.source)[0], FILE_LIMIT))
    else:
        prompt, output = workload.num_prompt.astype(np.int64), workload.num_output.astype(np.int64)
    if args.all:
        keep = (prompt > 0) & (output > 0)
        prompt, output = prompt[keep], output[keep]
    else:
        prompt, output = benchmark_sample(prompt, output)
    return lengths_workload(prompt, output, args.rate, args.seed)
