"""``simkv bench``: how fast the replay is on this machine."""

from __future__ import annotations

import argparse
from typing import Any

from simkv.commands import OK, source
from simkv.commands.text import seconds, table, whole
from simkv.plain import to_json

EPILOG = """\
The workload is read once and replayed once to compile and warm up; that is reported and not counted. Then it is read
and replayed --repeat times; requests per second come from the median. The totals say that the work was really done.

example:
  simkv bench replay mooncake --set block_size=512 --set num_gpu_blocks=8192 --repeat 5"""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("bench", help="measure the replay's speed", description="Measure how fast the replay is.")
    what = parser.add_subparsers(metavar="WHAT", required=True)
    replay = what.add_parser(
        "replay",
        help="requests and steps per second",
        description="Replay one workload several times and report requests and steps per second.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source.add_arguments(replay)
    source.add_settings(replay)
    replay.add_argument("--repeat", type=int, default=5, metavar="N", help="how many times to measure (default 5)")
    replay.add_argument("--events", choices=("off", "on"), default="off", help="with or without the event log (default off)")
    replay.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    replay.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure one workload."""
    from simkv.bench.measure import measure
    from simkv.errors import InputError

    if args.repeat < 1:
        raise InputError(f"--repeat is {args.repeat}", expected="a whole number of at least 1")
    result = measure(
        lambda: source.open_source(args),
        lambda workload: source.settings_for(args, workload),
        repeat=args.repeat,
        events=args.events == "on",
    )
    if args.json:
        print(to_json(result))
        return OK
    rows = [
        ("requests", whole(result["requests_per_s"]), f"per second (median of {args.repeat}, event log {args.events})"),
        ("steps", whole(result["steps_per_s"]), "per second"),
        ("one replay", seconds(result["wall_s"]), f"of {whole(result['totals']['requests'])} requests"),
        (
            "loading",
            seconds(result["load_s"]),
            f"reading and building arrays (the first time {seconds(result['first_load_s'])}, with what it imports)",
        ),
        ("compiling", seconds(result["compile_s"]), "once, not counted"),
    ]
    print(table(rows))
    print("totals: " + ", ".join(f"{name} {whole(value)}" for name, value in result["totals"].items()))
    return OK
