"""``simkv transfer``: KV in host memory: how much fits, how fast it comes back, and whether that beats computing it again."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from simkv.commands import OK
from simkv.commands.text import seconds, table, visible, whole
from simkv.plain import to_json

if TYPE_CHECKING:
    from simkv.diagnosis.break_even import BreakEven
    from simkv.hardware.host_size import HostSize

EPILOG = """\
examples:
  simkv transfer                                              default model and GPU
  simkv transfer --set model=Qwen2.5-72B --set tensor_parallel_size=4 --host-gib 200
  simkv transfer --set gpu=L40S --bandwidth 1                 a link of 1 GB/s: a disk, a network
  simkv transfer --blocks-per-chunk 16 --json

Loading wins from the length named in the first sentence. Both times are models: the assumptions are listed below the table."""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "transfer",
        help="KV in host memory: what fits, and from which prompt length loading it beats computing it again",
        description="How much KV fits into host memory, and from which prompt length loading it beats computing it again.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    help_set = "a setting of vLLM under its own name: model, gpu, tensor_parallel_size, kv_cache_dtype, block_size, … (`simkv settings`)"
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="pairs", help=help_set)
    host = parser.add_argument_group("the host")
    host.add_argument("--bandwidth", type=float, metavar="GB/S", help="10^9 bytes per second and direction between one GPU and the host")
    host.add_argument("--host-gib", type=float, default=64.0, metavar="GIB", help="host memory for KV over all GPUs (default 64)")
    host.add_argument("--blocks-per-chunk", type=int, default=1, metavar="N", help="GPU blocks per chunk of the native tier (default 1)")
    host.add_argument("--longest", type=int, metavar="TOKENS", help="longest prompt to look at (default: the model's longest)")
    parser.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print sizes, the break-even length and its curve."""
    from simkv.diagnosis.break_even import break_even
    from simkv.hardware import find_gpu
    from simkv.hardware.host_size import host_size
    from simkv.hardware.transfer import host_link
    from simkv.settings import EngineSettings

    settings = EngineSettings().with_pairs(args.pairs)
    size = host_size(settings, args.host_gib, args.blocks_per_chunk)
    link = host_link(find_gpu(settings.gpu), None if args.bandwidth is None else args.bandwidth * 1e9)
    found = break_even(settings, link, longest=args.longest)
    print(to_json(_plain(found, size)) if args.json else visible(report(found, size)))
    return OK


def _plain(found: BreakEven, size: HostSize) -> dict[str, Any]:
    return {
        "break_even_tokens": found.length,
        "longest": found.longest,
        "link": found.link.name,
        "bandwidth_bytes_per_s": found.link.bandwidth,
        "job_s": found.link.job_s,
        "bytes_per_token_and_gpu": found.bytes_per_token,
        "link_tokens_per_s": found.link_tokens_per_s,
        "host_bytes": size.host_bytes,
        "native_chunks": size.native_chunks,
        "native_chunk_bytes": size.chunk_bytes,
        "native_tokens": size.native_tokens,
        "simple_blocks": size.simple_blocks,
        "simple_tokens": size.simple_tokens,
        "curve": [
            {
                "tokens": c.context,
                "load_s": c.load_s,
                "recompute_s": c.recompute_s,
                "load_tokens_per_s": c.load_tokens_per_s,
                "prefill_tokens_per_s": c.prefill_tokens_per_s,
                "faster": c.faster,
            }
            for c in found.costs
        ],
        "assumptions": [*size.assumptions, *found.assumptions],
    }


def report(found: BreakEven, size: HostSize) -> str:
    """The figures for people."""
    head = ("prompt tokens", "load it", "compute it", "loading, tokens/s", "computing, tokens/s", "faster")
    rows = [
        (
            whole(c.context),
            seconds(c.load_s),
            seconds(c.recompute_s),
            whole(c.load_tokens_per_s),
            whole(c.prefill_tokens_per_s),
            c.faster,
        )
        for c in found.costs
    ]
    said = [*size.assumptions, *found.assumptions]
    return "\n".join([found.sentence, size.sentence, "", table(rows, head), "", *(f"- {s}" for s in said)])
