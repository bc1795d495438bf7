"""The fleet on the command line: how many replicas, which router, what happens to them; and what came out."""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simkv.commands import source
from simkv.commands.text import percent, seconds, table, whole
from simkv.errors import InputError
from simkv.settings.base import parse_value
from simkv.settings.fleet import FleetSettings, Operation

if TYPE_CHECKING:
    from simkv.diagnosis.ladder import Ladder
    from simkv.replay_fleet import FleetRun

MOST_REPLICAS_SHOWN = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that make a fleet of one replica."""
    group = parser.add_argument_group("a fleet: several replicas behind a router")
    group.add_argument("--replicas", type=int, metavar="N", help="replicas at the start (default 1)")
    group.add_argument("--router", metavar="NAME", help="policy that chooses a replica (see `simkv routers`; default round-robin)")
    group.add_argument(
        "--router-set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="router_pairs",
        help="a setting of the router under its own name",
    )
    group.add_argument("--routers", type=int, metavar="N", help="router processes, each with its own tables (default 1)")
    group.add_argument(
        "--operation",
        action="append",
        default=[],
        metavar="KIND,NAME=VALUE,…",
        dest="operations",
        help="deploy, fail, add or remove, for example deploy,at=1800,warm=8 or fail,at=600,replica=2,down_s=60; repeat it for more",
    )
    group.add_argument(
        "--fleet-set", action="append", default=[], metavar="NAME=VALUE", dest="fleet_pairs", help="another setting of the fleet"
    )
    group.add_argument("--fleet", type=Path, metavar="FILE", help="all of this from a TOML file (its table [fleet], or the whole file)")


def fleet_from(args: argparse.Namespace) -> FleetSettings | None:
    """The fleet that the options describe, over what comes with the source; ``None`` if there is neither."""
    values: dict[str, Any] = source.fleet_of(args.source)
    given = (args.replicas, args.router, args.routers, args.fleet) != (None,) * 4
    if not (values or given or args.router_pairs or args.operations or args.fleet_pairs):
        return None
    if args.fleet is not None:
        values |= _from_file(args.fleet)
    if args.router not in (None, values.get("router")):
        values.pop("router_settings", None)  # those of another router
    for name in ("replicas", "router", "routers"):
        if getattr(args, name) is not None:
            values[name] = getattr(args, name)
    if args.router_pairs:
        values["router_settings"] = {**values.get("router_settings", {}), **dict(map(_pair, args.router_pairs))}
    if args.operations:
        values["operations"] = [*values.get("operations", ()), *map(_operation, args.operations)]
    values.update(map(_pair, args.fleet_pairs))
    fleet = FleetSettings.from_mapping(values)
    _check_router(fleet)
    return fleet


def _check_router(fleet: FleetSettings) -> None:
    """Refuse an unknown policy or setting before a long read."""
    from simkv.fleet.routing import policy_class

    policy_class(fleet.router).Settings.from_mapping(fleet.router_settings)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise InputError(
            f"cannot be read as TOML ({problem})", file=str(path), expected="a table [fleet] with replicas, router, …"
        ) from None
    found = values.get("fleet", values)
    if not isinstance(found, dict):
        raise InputError("fleet is no table", file=str(path), expected="[fleet] with replicas, router, …")
    return found


def _pair(text: str) -> tuple[str, Any]:
    name, sep, value = text.partition("=")
    if not sep:
        raise InputError(f'"{text}" cannot be read', expected="NAME=VALUE")
    return name.strip().replace("-", "_"), parse_value(value.strip())


def _operation(text: str) -> Operation:
    kind, *pairs = text.split(",")
    return Operation.from_mapping({"kind": kind.strip(), **dict(map(_pair, pairs))})


def report(run: FleetRun, summary: dict[str, Any], ladder: Ladder | None) -> str:
    """A fleet's summary for people: one sentence, the figures, each replica, what happened."""
    s = summary
    alone = len(run.replicas) == 1
    lines = [
        f"{run.workload.name}: {whole(s['finished'])} of {whole(s['requests'])} requests finished on {len(run.replicas)}"
        f" replica{'s' * (not alone)} behind {run.fleet.router} in {seconds(s['end_time_s'])} of simulated time"
        f" (replayed in {seconds(s['wall_s'])}).",
    ]
    if run.status != "complete":
        lines.append(f"This run is {run.status}: the figures cover the part that was replayed.")
    if s["sent_again"]:
        lines.append(f"{whole(s['sent_again'])} requests were sent again because their replica died.")
    rows = [
        ("hit rate", percent(s["hit_rate"]), f"{whole(s['hits'])} of {whole(s['queries'])} prompt tokens at first admission, all replicas"),
        ("scheduled tokens", whole(s["scheduled_tokens"]), f"in {whole(s['steps'])} steps"),
        ("stored blocks", whole(s["stored_blocks"]), "entered a prefix cache"),
        ("removed blocks", whole(s["removed_blocks"]), "were evicted"),
        ("preemptions", whole(s["preemptions"]), "times a request was thrown back and recomputed"),
    ]
    lines += ["", table(rows)]
    if ladder is not None and ladder.has_content:
        above, rungs = ladder.queries, []
        for name, tokens, share, loss in ladder.rungs():
            rungs.append((name, percent(share), f"{whole(above - tokens)} tokens less: {loss}"))
            above = tokens
        lines += ["", table(rungs, ("where the hit rate goes", "of prompt tokens", ""))]
    names = (("queue_s", "queue"), ("ttft_s", "time to first token"), ("itl_s", "inter-token latency"), ("e2e_s", "end to end"))
    lines += [
        "",
        table(
            [(title, *(seconds(s[key][p]) for p in ("p50", "p95", "p99"))) for key, title in names],
            ("latency (model)", "p50", "p95", "p99"),
        ),
    ]
    head = ("replica", "requests", "hit rate", "computed tokens", "evicted blocks", "preemptions", "ttft p95")
    body = [
        (
            str(r["replica"]),
            whole(r["requests"]),
            percent(r["hit_rate"]),
            whole(r["scheduled_tokens"]),
            whole(r["removed_blocks"]),
            whole(r["preemptions"]),
            seconds(r["ttft_s"]["p95"]),
        )
        for r in s["per_replica"][:MOST_REPLICAS_SHOWN]
    ]
    lines += ["", table(body, head)]
    if len(s["per_replica"]) > MOST_REPLICAS_SHOWN:
        lines.append(f"… and {len(s['per_replica']) - MOST_REPLICAS_SHOWN} more (all of them with --json).")
    lines += _happened(run)
    notes = [*run.notes, *run.workload.report.notes, *run.replicas[0].resolved.notes]
    lines += ["", *(f"- {note}" for note in notes)] if notes else []
    lines += ["", "Decisions are exact, seconds are a model:", *(f"- {note}" for note in run.replicas[0].step_time.assumptions)]
    return "\n".join(lines)


def _happened(run: FleetRun) -> list[str]:
    from simkv.events.fleet_log import OPERATION_KINDS

    if not len(run.operations):
        return []
    rows = [(seconds(float(o["time"])), OPERATION_KINDS[o["kind"]], str(int(o["replica"]))) for o in run.operations]
    shown = rows[:40]
    more = [f"… and {len(rows) - 40} more."] if len(rows) > 40 else []
    return ["", table(shown, ("time", "what", "replica")), *more]
