"""The command line. This module only dispatches: each command's work is imported when it runs.

Exit codes: 0 ok, 1 a check failed, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from simkv import __version__
from simkv.commands import BAD_INPUT, INTERRUPTED, PIPE_CLOSED
from simkv.commands.text import visible
from simkv.errors import SimkvError

COMMANDS = ("replay", "compare", "conformance", "bench", "export", "transfer", "waste", "sharing", "scenarios", "app", "lists")

COLLECT_AFTER = 50_000
"""New objects between two looks for garbage in circles. By Python's own 700 a replay spends 5 % of its time on looking, at numba's
modules mostly, and finds next to nothing."""

EPILOG = """\
start here:
  simkv app                                        the app, in a browser, on this machine only
  simkv replay mooncake                            replay an hour of recorded traffic and say what the cache did
  simkv replay my_trace.jsonl --set num_gpu_blocks=20000 --set block_size=32
  simkv compare mooncake default kv_cache_dtype=fp8     the same traffic with up to four settings, and why they differ
  simkv settings                                   what --set takes
  simkv traces                                     the traces that come with simkv

Every command explains itself: simkv COMMAND --help.
Exit codes: 0 ok, 1 a check failed, 2 bad input, 130 interrupted."""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line, without importing what the commands need."""
    parser = argparse.ArgumentParser(
        prog="simkv",
        description="Replay LLM traffic through a decision-exact model of a serving engine's KV cache.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"simkv {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        import_module(f"simkv.commands.{name}").add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. What a user can mend ends in one sentence on stderr."""
    # numpy's threads for matrices, of which there are none here, spin for 30 ms of processor time when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    args = build_parser().parse_args(argv)
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, *before[1:])
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except SimkvError as problem:
        print("simkv: " + visible(str(problem).replace("\n", " ")), file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # The reader (head, less) has gone: nothing to say, and the interpreter must not try to flush to it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        print("simkv: interrupted, nothing was kept.", file=sys.stderr)
        return INTERRUPTED
    except MemoryError:
        print("simkv: not enough memory. Lower num_gpu_blocks or --limit, or leave the event log off (--no-events).", file=sys.stderr)
        return BAD_INPUT
    finally:
        gc.set_threshold(*before)


if __name__ == "__main__":
    sys.exit(main())
