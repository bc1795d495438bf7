"""``simkv scenarios``: production failures and decisions that can be replayed, with what ought to come out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

from simkv.commands import CHECK_FAILED, INTERRUPTED, OK
from simkv.commands.text import NO_DATA, table, visible
from simkv.plain import to_json

if TYPE_CHECKING:
    from simkv.replay import Progress
    from simkv.scenarios import Outcome, Scenario, Variant, Verdict

EPILOG = """\
examples:
  simkv scenarios                              what there is
  simkv scenarios memory_pressure              replay it: the variants' figures, and each expectation with what came out
  simkv replay scenario:memory_pressure        its first variant as any other source; /NAME for another one
  simkv compare scenario:nothing_hits default block_size=64

Exit code 0 when every expectation holds, 1 when one does not."""
WIDTH = 120
MARKS = {"holds": "ok", "does not hold": "NO", "not known": "?"}


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "scenarios",
        help="production failures and decisions that can be replayed, with what ought to come out",
        description="List the scenarios, or replay some and hold what comes out against what ought to.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios to replay (a unique beginning is enough); none lists them")
    parser.add_argument("--json", action="store_true", help="everything as JSON on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List or replay. Returns 0, 1 when an expectation does not hold, 130 when Ctrl-C cut it short."""
    from simkv.scenarios import find_scenario, scenarios

    if not args.names:
        rows = [{"name": s.name, "group": s.group, "title": s.title, "shows": s.shows} for s in scenarios()]
        print(to_json(rows) if args.json else "\n".join(_gallery(rows)))
        return OK
    asked = [find_scenario(name) for name in args.names]
    code, told = OK, []
    for scenario in asked:
        outcomes, verdicts, interrupted = _play(scenario)
        if args.json:
            told.append(as_mapping(scenario, outcomes, verdicts))
        else:
            print(visible(describe(scenario, outcomes, verdicts)), end="\n\n" if scenario is not asked[-1] else "\n")
        if interrupted:
            print(f"simkv: interrupted; {len(outcomes)} of {len(scenario.variants)} variants were replayed to the end.", file=sys.stderr)
            return INTERRUPTED
        code = CHECK_FAILED if any(v.outcome != "holds" for v in verdicts) else code
    if args.json:
        print(to_json(told))
    return code


def _play(scenario: Scenario) -> tuple[list[Outcome], list[Verdict], bool]:
    from simkv.commands.progress import watching
    from simkv.scenarios import judge, play

    with watching() as watch:

        def report(variant: Variant, progress: Progress) -> bool:
            before = scenario.variants.index(variant)
            return watch(replace(progress, fraction=(before + progress.fraction) / len(scenario.variants)))

        outcomes = play(scenario, progress=report)
        return outcomes, judge(scenario, outcomes), watch.interrupted


def _gallery(rows: Sequence[dict[str, str]]) -> list[str]:
    lines: list[str] = []
    width = max((len(r["name"]) for r in rows), default=0)
    for row, before in zip(rows, [None, *rows[:-1]], strict=True):
        if before is None or before["group"] != row["group"]:
            lines += ["", row["group"]] if lines else [row["group"]]
        lines.append(f"  {row['name'].ljust(width)}  {row['title']}")
    return [*lines, "", "simkv scenarios NAME replays one."]


def describe(scenario: Scenario, outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> str:
    """A scenario and what came out, for people."""
    from simkv.comparison import words
    from simkv.scenarios.figures import FIGURES

    lines = [scenario.title, "", fill(scenario.story, WIDTH), ""]
    lines += [fill(f"{v.name}: {v.about}", WIDTH, initial_indent="  ", subsequent_indent="    ") for v in scenario.variants]
    rows = []
    for key in scenario.figures:
        shown = [words.value(FIGURES[key], o.figure(key), NO_DATA) for o in outcomes]
        if any(cell != NO_DATA for cell in shown):
            rows.append((FIGURES[key].title, *shown))
    lines += ["", table(rows, ("", *(o.variant.name for o in outcomes))), ""]
    for v in verdicts:
        lines += [f"{MARKS[v.outcome].rjust(2)}  {v.expected.says}", f"    {v.found}."]
    held = sum(v.outcome == "holds" for v in verdicts)
    lines += ["", f"{held} of {len(verdicts)} expectations hold. {scenario.shows}"]
    return "\n".join(lines)


def as_mapping(scenario: Scenario, outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "name": scenario.name,
        "title": scenario.title,
        "variants": [
            {
                "name": o.variant.name,
                "status": o.status,
                "settings": {"engine": o.variant.settings.engine, **o.variant.settings.changed()},
                "fleet": o.variant.fleet.to_mapping() if o.variant.fleet is not None else None,
                "figures": {key: o.figure(key) for key in scenario.figures},
            }
            for o in outcomes
        ],
        "expected": [
            {"says": v.expected.says, "found": v.found, "value": v.value, "other": v.other, "outcome": v.outcome} for v in verdicts
        ],
    }
