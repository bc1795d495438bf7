"""``simkv export``: a run's event log for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from simkv.commands import OK
from simkv.commands.text import whole

EPILOG = """\
formats:
  parquet   every row of the event log as flat columns (pandas, DuckDB, Polars)
  jsonl     one event a line: vLLM's KV events with their real digests, and where each block went
  chrome    a timeline of requests and steps; open it at https://ui.perfetto.dev (nothing is uploaded) or chrome://tracing

examples:
  simkv replay mooncake --limit 2000 --out runs/a
  simkv export runs/a --format parquet --out events.parquet
  simkv export runs/a --format jsonl --kv-events-only --out kv_events.jsonl
  simkv export runs/a --format chrome --max-requests 500 --out trace.json"""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "export",
        help="write a run's event log as Parquet, JSON lines or a Chrome trace",
        description="Write the event log of a run kept with `simkv replay --out` in another format.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="RUN_DIR", help="folder written by `simkv replay --out`")
    parser.add_argument("--format", required=True, choices=("parquet", "jsonl", "chrome"))
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="file to write")
    parser.add_argument("--replica", type=int, metavar="I", help="of a fleet: whose log")
    parser.add_argument("--max-requests", type=int, default=2000, metavar="N", help="chrome: the first N requests (default 2000)")
    parser.add_argument("--kv-events-only", action="store_true", help="jsonl: only BlockStored, BlockRemoved, AllBlocksCleared")
    parser.add_argument("--no-tokens", action="store_true", help="jsonl: leave token_ids out")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Export one run."""
    from simkv.errors import InputError
    from simkv.run_folder import open_run

    if args.max_requests < 1:
        raise InputError(f"--max-requests is {args.max_requests}", expected="a whole number of at least 1")

    saved = open_run(args.folder)
    log = saved.log(args.replica)
    info = {name: saved.info[name] for name in ("simkv", "source", "settings", "status")}
    if args.format == "parquet":
        from simkv.events.export.parquet import write_parquet

        print(f"{whole(write_parquet(log, saved.workload, args.out, info=info))} events in {args.out}")
    elif args.format == "jsonl":
        from simkv.events.export.jsonl import write_jsonl

        digests = saved.digests()
        count = write_jsonl(log, digests, args.out, info=info, placement=not args.kv_events_only, tokens=not args.no_tokens)
        print(f"{whole(count)} events in {args.out}")
        if not saved.workload.prompts_have_content:
            print("The source holds no content: token ids and digests are made up, consistently.")
    else:
        from simkv.events.export.chrome import write_chrome

        n = write_chrome(log, saved.workload, saved.requests, args.out, info=info, max_requests=args.max_requests)
        print(f"{whole(n['requests'])} requests and {whole(n['steps'])} steps in {args.out}")
        if n["requests_left_out"] or n["steps_left_out"]:
            print(f"Left out to keep the file small: {whole(n['requests_left_out'])} requests, {whole(n['steps_left_out'])} steps.")
    return OK
