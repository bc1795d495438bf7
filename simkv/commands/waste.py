"""``simkv waste``: how much of reserved KV memory is used, and what that is worth in throughput."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from simkv.commands import OK, source
from simkv.commands.text import NO_DATA, percent, table, visible, whole
from simkv.errors import SettingsError
from simkv.plain import to_json

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from simkv.planning.throughput import Sustained

    Lengths = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]

EPILOG = """\
examples:
  simkv waste sharegpt_lengths                       figure 2 of the PagedAttention paper, and block sizes
  simkv waste azure_conv_2023 --all --max-model-len 16384
  simkv waste sharegpt_lengths --block-sizes 8,16,32 --json
  simkv waste sharegpt_lengths --throughput          request rates at equal latency, paged against contiguous

Shares are of the memory that requests hold, over all requests and steps: after step t a request holds its prompt and t tokens.
states: tokens that hold keys and values; reserved: room the request's own further tokens will take; internal: asked for,
never used; rounding: added by the buddy allocator to reach a power of two (the paper counts it as external fragmentation).
max reserves max-model-len, pow2 the prompt and the output rounded up to a power of two, oracle the true length.
Of ShareGPT the first two messages of each chat are taken as prompt and output, and of any source the requests that vLLM's
benchmark keeps: both at least 4 tokens, the prompt at most 1024, together at most 2048."""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "waste",
        help="how much of reserved KV memory is used: contiguous schemes and paged block sizes",
        description="How much of reserved KV memory holds tokens, for contiguous reservations and for paged blocks.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source.add_arguments(parser)
    what = parser.add_argument_group("what to work out")
    what.add_argument("--block-sizes", default="8,16,32,64,128,256", metavar="N,N,…", help="paged block sizes, in tokens")
    what.add_argument("--max-model-len", type=int, default=2048, metavar="N", help="what max reserves (default 2048, OPT's)")
    what.add_argument("--all", action="store_true", help="keep every request that fits in max-model-len")
    what.add_argument("--throughput", action="store_true", help="replay rising request rates until the latency passes a target")
    what.add_argument(
        "--latency", type=float, default=0.1, metavar="S", help="that target: mean of end-to-end seconds ÷ output tokens (default 0.1)"
    )
    what.add_argument("--model", default="OPT-13B", help="model of --throughput (default OPT-13B)")
    what.add_argument("--gpu", default="A100-SXM4-40GB", help="GPU of --throughput (default A100-SXM4-40GB)")
    what.add_argument("--json", action="store_true", help="everything as JSON on stdout, with every rate that was tried")
    parser.set_defaults(run=run, pairs=[])


def run(args: argparse.Namespace) -> int:
    """Work it out. Returns 0."""
    from simkv.planning.kv_waste import figure_2

    sizes = block_sizes(args.block_sizes)
    lengths = _lengths(args)
    bars = figure_2(*lengths, max_model_len=args.max_model_len, block_sizes=sizes)
    result: dict[str, Any] = {
        "source": args.source,
        "requests": len(lengths[0]),
        "mean_prompt": float(lengths[0].mean()),
        "mean_output": float(lengths[1].mean()),
        "max_model_len": args.max_model_len,
        "shares_of_held_memory": [bar.to_mapping() for bar in bars],
    }
    lines = [
        f"{args.source}: {whole(len(lengths[0]))} requests, in the mean {lengths[0].mean():.1f} tokens of prompt and"
        f" {lengths[1].mean():.1f} of output.",
        "",
        table(
            [(b.scheme, percent(b.states), percent(b.paper), percent(b.reserved), percent(b.internal), percent(b.rounding)) for b in bars],
            ("held memory", "states", "in the paper", "reserved", "internal", "rounding"),
        ),
    ]
    if args.throughput:
        result["throughput"], more = _throughput(args, lengths)
        lines += more
    print(to_json(result) if args.json else visible("\n".join(lines)))
    return OK


def block_sizes(text: str) -> list[int]:
    """``8,16,32`` as numbers. Raises SettingsError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,7}", part) and int(part) > 0 for part in parts):
        raise SettingsError("block-sizes", text, "whole numbers of at least 1 with commas between them")
    return [int(part) for part in parts]


def _lengths(args: argparse.Namespace) -> Lengths:
    """Prompt and output tokens of the requests to look at."""
    import numpy as np

    from simkv.planning.kv_waste import benchmark_sample
    from simkv.workload.source import FILE_LIMIT, Source
    from simkv.workload.traces.sharegpt_lengths import first_pairs

    if args.max_model_len < 1:
        raise SettingsError("max-model-len", args.max_model_len, "a whole number of at least 1")
    workload = source.open_source(args)
    if workload.format == "sharegpt-lengths":
        prompt, output = first_pairs(Source.from_path(source.path_of(args.source)[0], FILE_LIMIT))
    else:
        prompt, output = workload.num_prompt.astype(np.int64), workload.num_output.astype(np.int64)
    if not args.all:
        return benchmark_sample(prompt, output)
    keep = (prompt > 0) & (output > 0) & (prompt + output <= args.max_model_len)
    return prompt[keep], output[keep]


def _throughput(args: argparse.Namespace, lengths: Lengths) -> tuple[dict[str, Any], list[str]]:
    from simkv.metrics.waste import PARTS
    from simkv.planning.throughput import equal_latency, schemes, uniform

    settings = schemes(args.model, args.gpu, args.max_model_len)
    even = uniform(*lengths)
    mixed = equal_latency(*lengths, settings, target_s=args.latency, seed=args.seed)
    same = equal_latency(*even, settings, target_s=args.latency, seed=args.seed)
    rates = sorted({point.rate for s in mixed for point in s.curve})
    lines = [
        "",
        f"Request rates sustained at {args.latency:g} s per output token (mean of end to end ÷ output) by {args.model} on {args.gpu};",
        f"mixed: these lengths, uniform: all {even[0][0]} + {even[1][0]} tokens. Poisson arrivals, seed {args.seed};"
        f" {len(rates)} rates from {rates[0]:.3g} to {rates[-1]:.3g} requests/s were replayed for mixed.",
        "",
        table(
            [
                (a.scheme, _rate(a), _times(a), a.paper or NO_DATA, _running(a), _rate(b), _times(b))
                for a, b in zip(mixed, same, strict=True)
            ],
            ("scheme", "mixed req/s", "paged is ×", "in the paper ×", "running", "uniform req/s", "paged is ×"),
        ),
        "",
        table(
            [(s.scheme, *(percent(s.memory[part]) if s.memory else NO_DATA for part in PARTS)) for s in mixed],
            ("pool, mixed", *PARTS),
        ),
        "",
        "The pool over time, at the highest rate below the target: external is free memory while the first waiting request finds no",
        "piece big enough, idle is free otherwise.",
        "Decisions follow the published rules, seconds are a model. The paper's figures are over its three OPT models.",
    ]
    result = {
        "model": args.model,
        "gpu": args.gpu,
        "target_s_per_token": args.latency,
        "seed": args.seed,
        "mixed": [s.to_mapping() for s in mixed],
        "uniform_lengths": [int(even[0][0]), int(even[1][0])],
        "uniform": [s.to_mapping() for s in same],
    }
    return result, lines


def _rate(s: Sustained) -> str:
    return NO_DATA if s.rate is None else f"{s.rate:.2f}"


def _times(s: Sustained) -> str:
    return NO_DATA if s.paged_is_better is None else f"{s.paged_is_better:.2f}"


def _running(s: Sustained) -> str:
    return NO_DATA if s.running is None else f"{s.running:.1f}"
