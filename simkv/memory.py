"""How much memory there is for what is about to be made."""

from __future__ import annotations

import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Bytes that can still be had without swapping; ``None`` where the system does not say.

    Linux: what the kernel holds to be available, or what is left of the limit set for this container, whichever is less.
    Elsewhere: all memory of the machine, if ``sysconf`` knows it.
    """
    found = [n for n in (_left_by_kernel(), _left_in_container()) if n is not None]
    return min(found) if found else _whole_machine()


def _left_by_kernel() -> int | None:
    try:
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _left_in_container() -> int | None:
    try:
        limit, used = (int((CGROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        cache = sum(int(line.split()[1]) for line in (CGROUP / "memory.stat").read_text().splitlines() if line.startswith("inactive_file "))
    except (OSError, ValueError, IndexError):  # no container, or "max": no limit
        return None
    return max(limit - used + cache, 0)


def _whole_machine() -> int | None:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    return pages * size if pages > 0 and size > 0 else None
