"""A process that is no child of ours, known by its id and by when it started: the id alone may
belong to somebody else by now."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """``started`` in clock ticks since the machine was booted."""

    pid: int
    started: int


def identify(pid: int) -> Process | None:
    """The process that has this id now, None where none runs (zombies have ended)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        # A name may hold anything, parentheses too.
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else Process(pid, int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None
