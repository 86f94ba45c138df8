"""The jar of the planner plug-in, with a JDK from Debian where the machine has none."""

from __future__ import annotations

from pathlib import Path

from adon.machine import packages
from pegasus_hooks.plugin.build import COMPILER, Progress, ensure_jar


def planner_jar(*, progress: Progress) -> Path:
    """The jar, built first where that is needed. Raises MissingError."""
    return ensure_jar(progress=progress, find_compiler=debian_compiler)


def debian_compiler(progress: Progress) -> Path:
    """A javac in the user's cache. Raises MissingError without Debian's packages."""
    return packages.ensure("java", progress=progress) / "wrap" / COMPILER
