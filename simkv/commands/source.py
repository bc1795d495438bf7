"""Where a workload comes from: a file, a bundled trace, or a generator."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simkv.errors import InputError
from simkv.settings import ENGINES, Settings, settings_class

if TYPE_CHECKING:
    from simkv.scenarios import Variant
    from simkv.workload.workload import Workload

GENERATOR = "generator:"
SCENARIO = "scenario:"
ALIASES = {"mooncake": "mooncake_conversation"}
SOURCE_HELP = """\
a file (any format of `simkv formats`, gzip or not), the name of a bundled trace (`simkv traces`; a unique beginning
is enough), generator:NAME?parameter=value&… (`simkv generators`), or scenario:NAME/VARIANT (`simkv scenarios`)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SOURCE and how to read it."""
    parser.add_argument("source", metavar="SOURCE", help=SOURCE_HELP)
    reading = parser.add_argument_group("reading the source")
    reading.add_argument("--format", metavar="F", help="the file's format; recognised by its content if not given")
    reading.add_argument("--limit", type=int, metavar="N", help="only the first N requests by arrival")
    reading.add_argument("--skip-bad-rows", action="store_true", help="drop rows that cannot be used, count and report them")
    reading.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json for sources with text; without it a token is a byte of UTF-8")
    reading.add_argument(
        "--think",
        choices=("recorded", "closed"),
        default="recorded",
        help="agent sessions: as recorded, or each request after the last answer",
    )
    reading.add_argument(
        "--salts",
        metavar="MODE",
        default="keep",
        help="cache_salt of the requests: keep the source's (default), off, per-tenant or per-session",
    )
    reading.add_argument("--copies", type=int, default=1, metavar="N", help="the source N times over, each copy with contents of its own")
    reading.add_argument("--seed", type=int, default=0, help="seed of a generator (default 0)")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The engine and its settings."""
    engine = parser.add_argument_group("the engine")
    engine.add_argument(
        "--engine",
        choices=list(ENGINES),
        help="whose decisions are made (default: the engine the file was recorded with, else vllm)",
    )
    engine.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="pairs",
        help="a setting under the engine's own name; repeat it for more (`simkv settings` lists them)",
    )


def open_source(args: argparse.Namespace) -> Workload:
    """Read or generate the workload that ``args.source`` names.

    Raises:
        InputError: it is not there or cannot be used, or an option does not fit it.
    """
    from simkv.engine.engines import overruled
    from simkv.workload import transform

    text: str = args.source
    salts = transform.salt_mode(args.salts)  # before a long read
    if text.startswith(SCENARIO):
        workload = _scenario(text[len(SCENARIO) :], args)
    else:
        workload = _generate(text[len(GENERATOR) :], args) if text.startswith(GENERATOR) else _read(text, args)
    workload = transform.with_salts(workload, salts)
    # What --set names is the user's word even where it equals the default; the file's own setting must not come back.
    named = {pair.partition("=")[0].strip().replace("-", "_") for pair in args.pairs}
    return transform.repeat(overruled(workload, named), args.copies)


def settings_for(args: argparse.Namespace, workload: Workload) -> Settings:
    """The engine's defaults with what ``--set`` says; settings recorded in the workload's file come in between later."""
    from simkv.engine.engines import recorded_engine

    return settings_class(args.engine or recorded_engine(workload))().with_pairs(args.pairs)


def _read(text: str, args: argparse.Namespace) -> Workload:
    from simkv.workload.registry import read_workload

    path, name = path_of(text)
    workload = read_workload(
        path,
        format=args.format,
        limit=args.limit,
        skip_bad_rows=args.skip_bad_rows,
        tokenizer=args.tokenizer,
        think=args.think,
    )
    return workload if name is None else replace(workload, name=name)


def path_of(text: str) -> tuple[Path, str | None]:
    """Where the source lies, and its name if it is a bundled trace. A file of that name comes first."""
    path = Path(text).expanduser()
    if path.exists():
        return path, None
    from simkv.workload.bundled import bundled

    known = bundled()
    name = ALIASES.get(text, text.replace("-", "_"))
    matches = [name] if name in known else [full for full in known if full.startswith(name)]
    if len(matches) == 1:
        return known[matches[0]], matches[0]
    if matches:
        raise InputError(f"{text} may be " + " or ".join(matches), field="SOURCE", hint="Write a few letters more")
    raise InputError(
        f"there is no file and no bundled trace {text}",
        field="SOURCE",
        expected="a file, or one of " + ", ".join(known) + ", or generator:NAME or scenario:NAME",
        hint="`simkv traces` describes the bundled traces, `simkv generators` the generators",
    )


def _scenario(text: str, args: argparse.Namespace) -> Workload:
    """The traffic of a scenario's variant (the first if none is named); its settings come with it as those of a file would."""
    from simkv.scenarios.traffic import recorded
    from simkv.workload.transform import limit

    for option in ("format", "skip_bad_rows", "tokenizer", "seed"):
        if getattr(args, option):
            raise InputError(f"--{option.replace('_', '-')} does not apply to a scenario", field="SOURCE")
    workload = recorded(_variant(text))
    return workload if args.limit is None else limit(workload, args.limit)


def _variant(text: str) -> Variant:
    """``NAME/VARIANT``; the first one if none is named."""
    from simkv.scenarios import find_scenario

    name, _, variant = text.partition("/")
    scenario = find_scenario(name)
    return scenario.variant(variant) if variant else scenario.variants[0]


def fleet_of(source: str) -> dict[str, Any]:
    """The fleet that comes with a source, as plain values: that of a scenario's variant, else empty."""
    fleet = _variant(source[len(SCENARIO) :]).fleet if source.startswith(SCENARIO) else None
    return fleet.to_mapping() if fleet is not None else {}


def _generate(text: str, args: argparse.Namespace) -> Workload:
    from urllib.parse import parse_qsl

    from simkv.settings import parse_value
    from simkv.workload.generators import generate
    from simkv.workload.transform import limit

    for option in ("format", "skip_bad_rows", "tokenizer"):
        if getattr(args, option):
            raise InputError(
                f"--{option.replace('_', '-')} does not apply to a generator",
                field="SOURCE",
                hint="`simkv generators` lists their parameters",
            )
    name, _, query = text.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise InputError(
            f'the parameters "{query}" cannot be read', field="SOURCE", expected="generator:NAME?parameter=value&parameter=value"
        ) from None
    params: dict[str, Any] = {key.replace("-", "_"): parse_value(value) for key, value in pairs}
    workload = generate(name.replace("-", "_"), seed=args.seed, **params)
    return workload if args.limit is None else limit(workload, args.limit)
