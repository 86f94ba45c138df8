"""What HTCondor's submit files and a DAG's ``VARS`` lines assign."""

from __future__ import annotations

import re
from pathlib import Path

from monitors.logs.dag_files import text_of

_VARIABLE = re.compile(r'(\+?[\w.]+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ASSIGNMENT = re.compile(r"\s*(\+?[\w.]+)\s*=\s*(.*?)\s*\Z")
_LONGEST = 4096  # no path is longer; macros of macros would be, without end
_MACRO = re.compile(r"\$\(([\w.]+)\)")


def submit_values(path: Path) -> dict[str, str]:
    """The assignments of a submit file by lower-case name, ``+x`` and ``MY.x`` as ``my.x``.
    Raises InputError where it cannot be read."""
    if not _exists(path):
        return {}
    values: dict[str, str] = {}
    for line in text_of(path).splitlines():
        if found := _ASSIGNMENT.match(line):
            values[_key(found[1])] = found[2]
    return values


def variables(text: str) -> dict[str, str]:
    """The assignments of a ``VARS`` line, by lower-case name."""
    found = _VARIABLE.findall(text)
    return {_key(name): value.replace('\\"', '"').replace("\\\\", "\\") for name, value in found}


def expanded(value: str, values: dict[str, str]) -> str:
    """A value with its macros as they come out of ``values``."""
    for _ in range(5):  # macros may hold macros; one that holds itself must not hold us
        if "$(" not in value or len(value) > _LONGEST:
            break
        value = _MACRO.sub(lambda found: values.get(found[1].lower(), found[0]), value)
    return value


def _key(name: str) -> str:
    lower = name.lower()
    return f"my.{lower[1:]}" if lower.startswith("+") else lower


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False
