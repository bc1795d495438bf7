"""``simkv replay``: what the engine would do with this traffic."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simkv.commands import INTERRUPTED, OK, fleet, source
from simkv.commands.text import NO_DATA, percent, seconds, table, visible, whole
from simkv.plain import to_json

if TYPE_CHECKING:
    from simkv.diagnosis.host_report import HostReport
    from simkv.replay import Run
    from simkv.settings.fleet import FleetSettings

EPILOG = """\
examples:
  simkv replay mooncake                              bundled trace, default model and GPU
  simkv replay trace.jsonl --set block_size=32 --set gpu_memory_utilization=0.85
  simkv replay mooncake --set block_size=512 --set num_gpu_blocks=8192 --json
  simkv replay generator:multi_turn_chat --seed 7 --set engine_version=0.18
  simkv replay chats.jsonl --tokenizer tokenizer.json --skip-bad-rows
  simkv replay mooncake --limit 1000 --out runs/a    keep requests, metrics and the event log for `simkv export`
  simkv replay mooncake --replicas 4 --router sglang-cache-aware
  simkv replay mooncake --replicas 4 --router session-ring --operation deploy,at=1800,startup_s=90,warm=8

Hit rate is in tokens: hits ÷ queries over the whole run, as in vllm:prefix_cache_hits_total: first admissions only
(with an engine_version before 0.27 every lookup of a waiting request, as those releases count)."""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "replay",
        help="replay traffic and report hit rate, latencies, evictions, preemptions",
        description="Replay traffic through the engine's own scheduling and caching decisions.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source.add_arguments(parser)
    source.add_settings(parser)
    fleet.add_arguments(parser)
    output = parser.add_argument_group("what to keep")
    output.add_argument("--out", type=Path, metavar="DIR", help="write run.json, requests.csv, metrics.csv and the event log there")
    output.add_argument(
        "--events",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="record the event log (default: only with --out or a host tier)",
    )
    output.add_argument("--json", action="store_true", help="the summary as JSON on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay one source. Returns 0, or 130 when Ctrl-C cut it short (what was replayed is still reported)."""
    import gc

    gc.disable()  # one run of arrays and then the end of the process: there is nothing to collect
    from simkv.commands.progress import watching
    from simkv.diagnosis.host_report import has_host_tier, host_report
    from simkv.metrics.waste import waste
    from simkv.replay import replay
    from simkv.run_folder import check_target, save_run

    if args.out is not None:
        check_target(args.out)
    chosen = fleet.fleet_from(args)
    if chosen is not None:
        return _run_fleet(args, chosen)
    started = time.perf_counter()
    workload = source.open_source(args)
    load_s = time.perf_counter() - started
    settings = source.settings_for(args, workload)
    # What a host tier holds over time is known from the log alone.
    events = args.out is not None or has_host_tier(settings, workload) if args.events is None else args.events
    with watching() as watch:
        result = replay(workload, settings, events=events, progress=watch)
    host = host_report(result)
    summary = {**result.summary(), **(host.summary() if host else {}), "load_s": load_s, "compile_s": result.compile_s}
    memory = waste(result)
    summary["kv_memory"] = memory.shares() if memory is not None else None
    if args.out is not None:
        save_run(result, args.out, source=args.source, seed=args.seed, summary=summary)
    if args.json:
        print(to_json(summary))
    else:
        print(visible(report(result, summary, host)))
        if args.out is not None:
            print(f"\nKept in {args.out}." + _next_step(args.out) * (result.log is not None))
    if watch.interrupted:
        print(
            f"simkv: interrupted at {seconds(summary['end_time_s'])} of simulated time; the figures are of the part replayed.",
            file=sys.stderr,
        )
        return INTERRUPTED
    return OK


def _run_fleet(args: argparse.Namespace, chosen: FleetSettings) -> int:
    """Replay one source through a fleet; returns as ``run``."""
    from simkv.commands.progress import watching
    from simkv.diagnosis.fleet_ladder import ladder_of_fleet
    from simkv.fleet_folder import save_fleet
    from simkv.replay_fleet import replay_fleet

    started = time.perf_counter()
    workload = source.open_source(args)
    load_s = time.perf_counter() - started
    settings = source.settings_for(args, workload)
    events = args.out is not None if args.events is None else args.events
    with watching() as watch:
        # What the caches held at each decision is written to the run's folder only.
        result = replay_fleet(workload, settings, chosen, events=events, progress=watch, truth=args.out is not None)
    ladder = ladder_of_fleet(result)
    summary = {**result.summary(), "ladder": ladder.summary(), "load_s": load_s}
    if args.out is not None:
        save_fleet(result, args.out, source=args.source, seed=args.seed, summary=summary)
    if args.json:
        print(to_json(summary))
    else:
        print(visible(fleet.report(result, summary, ladder)))
        if args.out is not None:
            print(f"\nKept in {args.out}. One replica's event log for other programs: simkv export {args.out} --replica 0 …")
    return INTERRUPTED if watch.interrupted else OK


def _next_step(folder: Path) -> str:
    return f" The event log for other programs: simkv export {folder} --format parquet --out events.parquet"


def report(result: Run, summary: dict[str, Any], host: HostReport | None = None) -> str:
    """The summary for people: one sentence, then figures with their units and definitions."""
    s, r = summary, result.resolved
    timed = result.workload.time_unit == "seconds"
    clock = f"{seconds(s['end_time_s'])} of simulated time" if timed else f"{whole(s['end_time_s'])} steps"
    lines = [
        f"{result.workload.name}: {whole(s['finished'])} of {whole(s['requests'])} requests finished in {clock}"
        f" (replayed in {seconds(s['wall_s'])}).",
    ]
    if result.status != "complete":
        lines.append(f"This run is {result.status}: the figures cover the part that was replayed.")
    if not r.enable_prefix_caching:
        hits = (NO_DATA, "nothing is looked up: no prefix cache")
    elif result.workload.prompts_have_content:
        counted = "looked up, each attempt anew as this release counts" if r.stats_at_lookup else "at first admission"
        hits = (percent(s["hit_rate"]), f"{whole(s['hits'])} of {whole(s['queries'])} prompt tokens {counted}, whole run")
    else:
        hits = (NO_DATA, "the source says nothing about content")
    moved = r.engine == "contiguous"
    thrown = "times a request was moved to host memory" if moved else "times a request was thrown back and recomputed"
    rows = [
        ("hit rate", *hits),
        ("scheduled tokens", whole(s["scheduled_tokens"]), f"in {whole(s['steps'])} steps"),
        ("stored blocks", whole(s["stored_blocks"]), f"of {r.block_size} token{'s' * (r.block_size != 1)} entered the prefix cache"),
        ("removed blocks", whole(s["removed_blocks"]), f"were evicted from a pool of {whole(r.num_gpu_blocks)} blocks"),
        ("preemptions", whole(s["preemptions"]), thrown),
    ]
    if s.get("rejected"):
        rows.append(("rejected", whole(s["rejected"]), "requests the engine refuses"))
    if s.get("kv_memory"):
        others = ", ".join(f"{name} {percent(share)}" for name, share in s["kv_memory"].items() if name != "states")
        rows.append(("token states", percent(s["kv_memory"]["states"]), f"of the KV memory, mean over time; {others}"))
    rows += host.rows() if host is not None else []
    lines += ["", table(rows)]
    if timed:
        names = (("queue_s", "queue"), ("ttft_s", "time to first token"), ("itl_s", "inter-token latency"), ("e2e_s", "end to end"))
        latencies = [(title, *(seconds(s[key][p]) for p in ("p50", "p95", "p99"))) for key, title in names if key in s]
        lines += ["", table(latencies, ("latency (model)", "p50", "p95", "p99"))]
    read = result.workload.report
    notes = [*result.notes, *(host.warnings if host is not None else ()), *read.notes, *r.notes]
    if read.dropped:
        notes.insert(0, f"{whole(read.dropped)} of {whole(read.rows)} rows were dropped as unusable: {'; '.join(read.first_dropped)}")
    lines += ["", *(f"- {note}" for note in notes)] if notes else []
    if timed:
        link = host.break_even.link.assumptions if host is not None else ()
        lines += ["", "Decisions are exact, seconds are a model:", *(f"- {note}" for note in (*result.step_time.assumptions, *link))]
    return "\n".join(lines)
