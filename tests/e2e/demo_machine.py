"""What a demo could leave on the machine beside processes and files."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

# Semaphores of Python's multiprocessing, and what PostgreSQL has while a database is made: tests
# that run meanwhile do both, and no demo does the second.
_OTHERS = re.compile(r"/(sem\.mp-|PostgreSQL\.)")
# Sysctls that count or adapt by themselves.
_RESTLESS = re.compile(r"/(nf_conntrack_count|flush|tcp_fastopen_key)\Z")


def machine() -> dict[str, Any]:
    """Names of all that can be left, and the values of all network sysctls."""
    netns = Path("/run/netns")
    return {
        "network namespaces": _entries(netns) if netns.exists() else "no directory",
        "mounts": sorted(Path("/proc/self/mounts").read_text().splitlines()),
        "interfaces": _entries(Path("/sys/class/net")),
        "sysctls": _sysctls(Path("/proc/sys/net")),
        "control groups": sorted(str(p) for p in Path("/sys/fs/cgroup").rglob("*condor*")),
        "shared memory": [e for e in _entries(Path("/dev/shm")) if not _OTHERS.search(e)],
    }


def _entries(folder: Path) -> list[str]:
    return sorted(str(entry) for entry in folder.iterdir())


def _sysctls(top: Path) -> dict[str, str]:
    values = {}
    for folder, _, files in os.walk(top):
        for name in files:
            path = Path(folder) / name
            if not _RESTLESS.search(str(path)):
                with suppress(OSError):  # some can only be written
                    values[str(path)] = path.read_text().strip()
    return values
