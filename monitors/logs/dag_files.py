"""The DAG files of a directory, and which of them is the whole workflow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from network_provisioner.errors import InputError

DAG = ".dag"

_SHOWN = 5  # DAGs in a message
_PART = re.compile(
    r"\s*(?:SUBDAG\s+EXTERNAL\s+\S+\s+(\S+)|(?:SPLICE\s+\S+|INCLUDE)\s+(\S+))", re.IGNORECASE
)

# A word of HTCondor's arguments: what stands in ' ' belongs to it, and '' in there is one '.
_QUOTED = r"'((?:[^']|'')*)'"
_ARGUMENT = re.compile(rf"(?:^|\s)-dag\s+((?:[^\s']|{_QUOTED})+)", re.IGNORECASE)


def dag_of(arguments: str) -> str | None:
    """The DAG that a DAGMan with these arguments runs, the first of several; None for others."""
    found = _ARGUMENT.search(arguments)
    if found is None:
        return None
    return re.sub(_QUOTED, lambda quoted: quoted[1].replace("''", "'"), found[1])


def only_dag(folder: Path) -> str:
    """The name of the one DAG in ``folder``, apart from those that others name as parts of
    themselves. Raises InputError where there is none, or several."""
    dags = sorted(path for path in folder.glob(f"*{DAG}") if is_file(path))
    inside = {part for dag in dags for part in _parts(dag)} if len(dags) > 1 else set()
    whole = [dag for dag in dags if dag.name not in inside]
    if len(whole) == 1:
        return whole[0].name
    instead = f", or one of them: {_some(whole or dags)}" if dags else ""
    raise InputError(
        f"{folder}: found {len(dags)} {DAG} files and no braindump.yml that names one,"
        f" expected a submit directory{instead}"
    )


def place(dag: Path) -> str:
    """Where a DAG is, by whatever links it was reached."""
    return str(dag.parent.resolve() / dag.name)


def is_file(path: Path) -> bool:
    """Whether it is a file, as far as one may look. Raises nothing."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # one may not look; a name that is too long, or none
        return False


def text_of(path: Path) -> str:
    """A file as text. Raises InputError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte in it
        problem = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: cannot be read: {problem}") from error


def _parts(dag: Path) -> set[str]:
    """The DAGs of the same directory that a DAG is made of; itself is none of them."""
    named: list[str] = []
    with suppress(InputError):
        lines = text_of(dag).splitlines()
        named = [found[1] or found[2] for line in lines if (found := _PART.match(line))]
    parts = [dag.parent / name for name in named]
    return {part.name for part in parts if part.parent == dag.parent and part != dag}


def _some(dags: Sequence[Path]) -> str:
    return ", ".join(map(str, dags[:_SHOWN])) + (", …" if len(dags) > _SHOWN else "")
