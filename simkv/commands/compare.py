"""``simkv compare``: up to four settings on the same traffic, and why they differ."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simkv.commands import INTERRUPTED, OK, source
from simkv.commands.text import NO_DATA, seconds, table, visible
from simkv.plain import to_json

if TYPE_CHECKING:
    from simkv.comparison import Choice, Comparison
    from simkv.replay import Progress

DEFAULT_SOURCE = "claude_code"
EPILOG = """\
Settings are written name=value,name=value, as a TOML file, as an engine's name, or as the word default. A is complete by
itself; B, C and D are A with what they say changed. The KV pool keeps A's size in bytes whatever the block size, element
type or engine, unless they size it themselves; tokens=N gives its size in tokens for any engine.

examples:
  simkv compare mooncake default block_size=512
  simkv compare mooncake block_size=16,num_gpu_blocks=20000 block_size=128 kv_cache_dtype=fp8
  simkv compare trace.jsonl tokens=400000 sglang sglang,page_size=64
  simkv compare a.toml b.toml --source generator:multi_turn_chat --seed 7
  simkv compare block_size=16 block_size=128 --out compared     the bundled trace of coding agents

Hit rate is in tokens: cached ÷ prompt tokens at first admissions, whole run, for every engine."""

DEFINITIONS = """\
Hit rate: cached ÷ prompt tokens at first admissions, whole run. KV usage: blocks of live requests ÷ usable blocks, mean over
time. --json and --out carry the definition of every figure."""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "compare",
        help="up to four settings or engines on the same traffic, and why they differ",
        description="Replay the same requests with up to four settings: one table, and the difference explained.",
        usage="simkv compare [SOURCE] A [B [C [D]]] [options]",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source.add_arguments(parser)
    parser.add_argument("settings", nargs="*", metavar="SETTINGS", help="A, B, C, D; a single one is compared with the defaults")
    parser.add_argument(
        "--source", dest="given", metavar="SOURCE", help=f"the traffic, if it is not the first word (default {DEFAULT_SOURCE})"
    )
    output = parser.add_argument_group("what to keep")
    output.add_argument("--out", type=Path, metavar="DIR", help="write comparison.json, .csv and .html there")
    output.add_argument("--json", action="store_true", help="everything as JSON on stdout")
    parser.set_defaults(run=run, pairs=[])
    _words_anywhere(parser)


def _words_anywhere(parser: argparse.ArgumentParser) -> None:
    """Let options stand between the settings, which argparse offers for a whole command line but not for one command of it."""
    plain = parser.parse_known_args

    def parse(args: Any = None, namespace: Any = None) -> Any:
        parser.parse_known_args = plain  # type: ignore[method-assign]
        try:
            return parser.parse_known_intermixed_args(args, namespace)
        finally:
            parser.parse_known_args = parse  # type: ignore[method-assign]

    parser.parse_known_args = parse  # type: ignore[method-assign]


def run(args: argparse.Namespace) -> int:
    """Replay once for each of the settings. Returns 0, or 130 when Ctrl-C cut it short (finished sides are still reported)."""
    import gc

    gc.disable()  # arrays and then the end of the process: there is nothing to collect
    from simkv.commands.progress import watching
    from simkv.comparison import choices, compare
    from simkv.comparison.export import as_mapping, check_folder, save

    texts = _sort_words(args)
    if args.out is not None:
        check_folder(args.out)
    workload = source.open_source(args)
    asked = choices(texts if len(texts) > 1 else ["default", *texts], workload)
    with watching() as watch:

        def report(choice: Choice, progress: Progress) -> bool:
            before = asked.index(choice)
            return watch(replace(progress, fraction=(before + progress.fraction) / len(asked)))

        found = compare(workload, asked, progress=report)
    if not found.sides:
        raise KeyboardInterrupt
    if args.out is not None:
        save(found, args.out, args.source, args.seed)
    if args.json:
        print(to_json(as_mapping(found, args.source, args.seed)))
    else:
        print(visible(describe(found)))
        if args.out is not None:
            print(f"\nKept in {args.out}: comparison.html to read, .csv and .json for other programs.")
    if watch.interrupted:
        print(f"simkv: interrupted; {len(found.sides)} of {len(asked)} settings were replayed to the end.", file=sys.stderr)
        return INTERRUPTED
    return OK


def _sort_words(args: argparse.Namespace) -> list[str]:
    """Which words are settings; sets ``args.source``."""
    if args.given is not None:
        texts = [args.source, *args.settings]
        args.source = args.given
    elif _is_settings(args.source):
        texts = [args.source, *args.settings]
        args.source = DEFAULT_SOURCE
    else:
        texts = list(args.settings)
    return texts


def _is_settings(word: str) -> bool:
    """Whether the first word is settings: a file of that name is always the source."""
    from simkv.settings import ENGINES

    if word.endswith(".toml") or word == "default" or word.partition(",")[0] in ENGINES:
        return True
    return re.match(r"[A-Za-z_-]+=", word) is not None and not Path(word).exists()


def describe(found: Comparison) -> str:
    """The comparison for people: sides, why they differ, the table."""
    from simkv.comparison import words

    w, sides = found.sides[0].run.workload, found.sides
    lines = [f"{w.name}: {len(w):,} requests, the same for each.", ""]
    rows = []
    for side in sides:
        r = side.run.resolved
        rows.append((side.name, side.label, f"{r.engine} {r.version}", words.pool(side.run), f"replayed in {seconds(side.run.wall_s)}"))
    lines.append(table(rows))
    for e in found.explanations:
        lines += ["", f"{e.names[1]} against {e.names[0]}: {e.sentence}"]
        lines += [e.parting.sentence] if e.parting is not None else []
    lines += ["", comparison_table(found), "", DEFINITIONS]
    lines += ["", *(f"- {note}" for note in found.notes)] if found.notes else []
    return "\n".join(lines)


def comparison_table(found: Comparison) -> str:
    """Metrics down, sides across; what a side has more or less than A beside its figure."""
    from simkv.comparison import words

    head = ["", found.sides[0].name]
    for side in found.sides[1:]:
        head += [side.name, "vs A"]
    rows = []
    for row in found.rows:
        cells = [row.metric.title, words.value(row.metric, row.values[0], NO_DATA)]
        for i in range(1, len(found.sides)):
            moved, mark = words.change(row, i), {"better": " better", "worse": " worse"}.get(row.verdict(i), "")
            cells += [words.value(row.metric, row.values[i], NO_DATA), moved + mark if moved else ""]
        rows.append(cells)
    return table(rows, head)
