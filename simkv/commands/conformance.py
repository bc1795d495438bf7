"""``simkv conformance``: is the replay still what the real engine did?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simkv.commands import CHECK_FAILED, OK
from simkv.commands.text import visible
from simkv.plain import to_json

if TYPE_CHECKING:
    from simkv.conformance.result import RunResult

EPILOG = """\
DIR holds recorded runs: NAME.input.json[.gz] with NAME.log.jsonl[.gz] (one record per step of the real scheduler), or
NAME.json[.gz] recorded from a running server or a router. Every field of every record is compared.

examples:
  simkv conformance tests/golden/vllm
  simkv conformance recordings --json | jq '.runs[] | select(.exact | not)'"""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "conformance",
        help="replay recorded runs of the real engine and compare every field",
        description="Replay every recorded run found in DIR and compare every field of every record.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with recorded runs")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compare all runs of a folder. Returns 1 on any difference."""
    from simkv.conformance import run_conformance

    results = run_conformance(args.folder, on_result=None if args.json else _say)
    judged, reported = [r for r in results if not r.reported], [r for r in results if r.reported]
    exact = sum(r.exact for r in judged)
    if args.json:
        runs, others = [r.to_json() for r in judged], [r.to_json() for r in reported]
        print(to_json({"total": len(judged), "exact": exact, "runs": runs, "reported": others}))
    else:
        print(f"{exact} of {len(judged)} runs exact" + (f", {len(reported)} reported" if reported else ""))
    return OK if exact == len(judged) else CHECK_FAILED


def _say(result: RunResult) -> None:
    if result.reported:
        verdict = "reported"
    elif result.first_difference is None:
        verdict = "exact"
    else:
        verdict = f"differs: {result.first_difference.sentence()}"
    print(visible(f"{result.name}: {verdict}" + (f" ({result.note})" if result.note else "")), flush=True)
