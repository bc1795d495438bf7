"""``simkv app``: the pages in a browser, served to this machine only."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from simkv.errors import InputError, SimkvError

EPILOG = """\
The server listens on this machine only (127.0.0.1) unless --address says otherwise. Nothing is sent anywhere: no
usage statistics, no fonts, no scripts from elsewhere.

examples:
  simkv app
  simkv app --port 8600 --no-browser"""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "app",
        help="open the app in a browser",
        description="Serve the app to this machine and open it in a browser.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, help="port (default 8501, or the next free one)")
    parser.add_argument("--address", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--no-browser", action="store_true", help="only serve")
    parser.set_defaults(run=run)


def app_script() -> Path:
    """The app's entry script: inside the package once installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for path in (package / "_app" / "app.py", package.parent / "app.py"):
        if path.exists():
            return path
    raise SimkvError("this installation of simkv lacks the app: install it again, or run it from a checkout.")


def command(port: int | None, address: str, browser: bool) -> list[str]:
    """The command line that serves the app, with streamlit's own options."""
    options = {
        "server.address": address,
        "server.showEmailPrompt": "false",
        "browser.gatherUsageStats": "false",
        "server.fileWatcherType": "none",
    }
    if port is not None:
        options["server.port"] = str(port)
    if not browser:
        options["server.headless"] = "true"
    return [sys.executable, "-m", "simkv.ui.serve", str(app_script()), *(f"--{name}={value}" for name, value in options.items())]


def run(args: argparse.Namespace) -> int:
    """Become the server; does not return where processes can be replaced."""
    if args.port is not None and not 0 < args.port < 65536:
        raise InputError(f"--port is {args.port}", expected="a whole number from 1 to 65535")
    line = command(args.port, args.address, not args.no_browser)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execv(line[0], line)
    import subprocess

    return subprocess.call(line)
