"""What there is to choose from: traces, formats, generators, routers, models, GPUs, profiles and settings, one command each."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

from simkv.commands import OK
from simkv.commands.text import table, whole
from simkv.plain import to_json

Rows = list[dict[str, Any]]


def add(commands: Any) -> None:
    """Declare the commands."""
    for name, (help_line, rows, show) in LISTS.items():
        parser = commands.add_parser(name, help=help_line, description=help_line[0].upper() + help_line[1:] + ".")
        parser.add_argument("--json", action="store_true", help="the list as JSON on stdout")
        parser.set_defaults(run=_run, rows=rows, show=show)


def _run(args: argparse.Namespace) -> int:
    rows: Rows = args.rows()
    print(to_json(rows) if args.json else args.show(rows))
    return OK


def _traces() -> Rows:
    from simkv.workload.bundled import bundled
    from simkv.workload.registry import detect, formats
    from simkv.workload.source import FILE_LIMIT, Source

    found = {name: detect(Source.from_path(path, FILE_LIMIT)).name for name, path in bundled().items()}
    titles = {f.name: f.title for f in formats()}
    return [{"name": name, "title": titles[format], "format": format, "path": str(bundled()[name])} for name, format in found.items()]


def _formats() -> Rows:
    from simkv.workload.registry import formats

    return [{"name": f.name, "title": f.title, "fields": f.fields, "lines": f.lines, "bundled": f.example} for f in formats()]


def _generators() -> Rows:
    from simkv.workload.generators import generators

    fields = ("name", "default", "allowed", "help")
    params = {g.name: [{f: getattr(p, f) for f in fields} for p in g.params] for g in generators()}
    return [{"name": g.name, "title": g.title, "story": g.story, "params": params[g.name]} for g in generators()]


def _routers() -> Rows:
    from simkv.fleet.routing import policy_class, policy_names

    rows: Rows = []
    for name in policy_names():
        policy = policy_class(name)
        about = (policy.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
        params = [
            {"name": f.name, "default": getattr(policy.Settings(), f.name), "help": f.metadata.get("help", "")}
            for f in dataclasses.fields(policy.Settings)
        ]
        rows.append({"name": name, "product": policy.product, "rule": " ".join(about.split()), "settings": params})
    return rows


def _models() -> Rows:
    from simkv.hardware import models

    return [dataclasses.asdict(m) for m in models().values()]


def _gpus() -> Rows:
    from simkv.hardware import gpus

    return [dataclasses.asdict(g) for g in gpus().values()]


def _profiles() -> Rows:
    from simkv.engine.profiles import profiles

    return [dataclasses.asdict(p) for p in profiles()]


def _settings() -> Rows:
    from simkv.settings import ENGINES

    out = []
    for engine, settings in ENGINES.items():
        for f in dataclasses.fields(settings):
            meta = f.metadata
            allowed = "|".join(meta["choices"]) if "choices" in meta else f"{meta['min']}…{meta['max']}" if "min" in meta else ""
            out.append({"engine": engine, "name": f.name, "default": f.default, "allowed": allowed, "help": meta["help"]})
    return out


def _show_pairs(rows: Rows) -> str:
    return table([(r["name"], r["title"]) for r in rows])


def _show_formats(rows: Rows) -> str:
    parts = []
    for r in rows:
        example = "\n".join(f"    {line}" for line in r["lines"].splitlines())
        bundled = f"\n  bundled: {r['bundled']}" if r["bundled"] else ""
        parts.append(f"{r['name']}: {r['title']}\n  fields: {', '.join(r['fields'])}\n{example}{bundled}")
    return "\n\n".join(parts)


def _show_generators(rows: Rows) -> str:
    parts = ["simkv replay 'generator:NAME?parameter=value&parameter=value' --seed 1"]
    for r in rows:
        params = [(f"  {p['name']}", p["default"], p["help"]) for p in r["params"]]
        parts.append(f"{r['name']}: {r['title']}\n  {r['story']}\n{table(params)}")
    return "\n\n".join(parts)


def _show_models(rows: Rows) -> str:
    head = ("model", "parameters", "weights GB", "KV bytes/token (bf16)")
    return table(
        [(m["name"], f"{m['params_total'] / 1e9:,.2f} B", f"{m['weight_bytes'] / 1e9:,.1f}", whole(_kv_bytes(m["name"]))) for m in rows],
        head,
    )


def _kv_bytes(name: str) -> int:
    from simkv.hardware import kv_bytes_per_token, models

    return kv_bytes_per_token(models()[name], "auto", 1)


def _show_gpus(rows: Rows) -> str:
    head = ("GPU", "memory GiB (as the engine sees it)", "TB/s", "bf16 TFLOP/s", "confidence")
    return table(
        [
            (
                g["name"],
                f"{g['total_bytes'] / 2**30:.2f}",
                f"{g['bandwidth'] / 1e12:.2f}",
                f"{g['bf16_flops'] / 1e12:,.0f}",
                g["confidence"],
            )
            for g in rows
        ],
        head,
    )


def _show_profiles(rows: Rows) -> str:
    return table([(p["version"], p["changes"]) for p in rows], ("engine_version", "what is new in this release line"))


def _show_settings(rows: Rows) -> str:
    shown: dict[str, list[tuple[str, str, str, str]]] = {}
    for r in rows:
        default = "none" if r["default"] is None else str(r["default"]).lower() if isinstance(r["default"], bool) else str(r["default"])
        shown.setdefault(r["engine"], []).append((r["name"], "[]" if default == "()" else default, r["allowed"], r["help"]))
    parts = [f"--engine {name}\n\n" + table(rows, ("--set NAME=VALUE", "default", "allowed", "meaning")) for name, rows in shown.items()]
    return "\n\n".join(parts) + "\n\nnone: the engine's own default for the model, GPU and workload."


def _show_routers(rows: Rows) -> str:
    lines: list[str] = []
    for row in rows:
        lines += [f"{row['name']}  ({row['product']})", f"  {row['rule']}"]
        lines += [f"    {p['name']}={p['default']}  {p['help']}" for p in row["settings"]]
    return "\n".join(lines)


def _retired() -> Rows:
    from simkv.metrics.retired import retired

    return [dataclasses.asdict(r) for r in retired()]


def _show_retired(rows: Rows) -> str:
    return table([(r["name"], r["gone"], r["why"], r["instead"]) for r in rows], ("name", "gone since", "why", "instead"))


LISTS: dict[str, tuple[str, Callable[[], Rows], Callable[[Rows], str]]] = {
    "traces": ("the traces that come with simkv", _traces, _show_pairs),
    "formats": ("the trace formats that simkv reads", _formats, _show_formats),
    "generators": ("the generators of made-up traffic and their parameters", _generators, _show_generators),
    "routers": ("the routing policies of fleets and their settings, for --router and --router-set", _routers, _show_routers),
    "models": ("the models whose memory simkv knows", _models, _show_models),
    "gpus": ("the GPUs that simkv knows", _gpus, _show_gpus),
    "retired": ("vLLM metrics and flags of old runbooks that are gone, and what to use instead", _retired, _show_retired),
    "profiles": ("the engine releases whose behaviour can be chosen", _profiles, _show_profiles),
    "settings": ("the engine's settings, for --set", _settings, _show_settings),
}
