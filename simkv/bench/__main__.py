"""``python -m simkv.bench`` (``make bench``): every figure of the README's speed section, measured in one go.

The machine's load moves absolute times, so each figure stands beside one measured in the same minute: events on beside
events off, loading beside replaying, ten times the trace beside the trace. Totals are asserted: a replay that does not
end with them has not done the work, however fast.
"""

from __future__ import annotations

import subprocess
import sys

from simkv.bench import fleet, whole
from simkv.bench.whole import Section


def main() -> int:
    """Measure everything and print Markdown. Returns 1 if a total was wrong."""
    subprocess.run([sys.executable, "-m", "simkv.warm", "all"], check=True)
    ok = _show(whole.mooncake()) & _show(whole.ten_times()) & _show(fleet.fleet())
    from simkv.bench import inside, page, radix  # only now: see whole.py

    shown = [_show(section()) for section in (*inside.SECTIONS, radix.radix, page.page)]
    ok = ok and all(shown)
    return 0 if ok else 1


def _show(section: Section) -> bool:
    title, lines, right = section
    print(f"### {title}\n\n" + "\n".join(lines) + "\n", flush=True)
    return right


if __name__ == "__main__":
    sys.exit(main())
