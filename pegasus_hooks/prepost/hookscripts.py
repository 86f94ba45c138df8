"""The hooks as Pegasus's settings name them: each one program, without arguments.

Properties and profiles take a path and no command, so a small shell script is between DAGMan
and Python. It costs nothing that can be measured (1 ms of the 10 that Python needs to start), and
it keeps the promise that a failure of ours never fails a job even where ours never gets to run: a
Python that is gone, killed or out of memory counts as a hook that had nothing to say. Most jobs
have no transfers: the script knows them by their files, and starts no Python.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from network_provisioner.base.errors import InputError
from pegasus_hooks.prepost.prejob import DEFER_STATUS

PRE_NAME, POST_NAME, CONFIG_NAME = "adon-pre", "adon-exitcode", "adon-hooks.json"
MARK = "# Written by ADON: "  # by it a script is known as ours
PRE_PROPERTY = "dagman.pre"
PRE_ARGUMENTS = "$JOB $RETRY $MAX_RETRIES"
# First of the arguments of POST, and for ours alone: before 5.1.3 pegasus-exitcode is told no
# retry, and fails the job where it is.
POST_RETRY = "$RETRY"
POST_ARGUMENTS = f"{POST_RETRY} -r $RETURN"  # of a POST of our own; Pegasus adds the job's output
POST_PROPERTY = "dagman.post"
POST_PATH_PROPERTY = "dagman.post.path.pegasus-exitcode"
PEGASUS_POSTS = ("", "pegasus-exitcode")  # of dagman.post: Pegasus's own check runs
MAX_PRE = 20  # PRE scripts side by side; without it Pegasus writes 1
_HOOKS = Path(__file__).resolve().parents[1]
_PRE_LINE = re.compile(r"\s*SCRIPT\s+(?:DEFER\s+\d+\s+\d+\s+)?PRE\s+\S+\s+(.+)", re.IGNORECASE)
# A PegasusLite script is at most two folders deep, unless Pegasus was told to make them deeper.
_NO_TRANSFERS = """\
case "$1" in *stage_*) ;; *)
    for file in "$1.sh" */"$1.sh" */*/"$1.sh" 00/00/00; do test -e "$file" && break; done
    test -e "$file" || exit 0 ;;
esac
"""
# Nothing was asked for the job, and by -M the check itself keeps the sizes of what it wrote.
_NOTHING_ASKED = """\
kept=
for output; do test "$output" != -M || kept=1; done
case "$kept$output" in *stage_*) ;; 1*.out)
    test -e "${output%.out}.adon.json" || exec CHECK "$@" ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Commands:
    """What the scripts start: ``python``, which runs the hooks with the configuration ``config``,
    and Pegasus's own check of a job, ``exitcode``."""

    python: str
    config: str
    exitcode: str


def pre_script(commands: Commands) -> str:
    """PRE of every job, called with PRE_ARGUMENTS."""
    return (
        f"#!/bin/sh\n{MARK}asks for the paths of a job's transfers.\n"
        f"{_NO_TRANSFERS}"
        f'{_hook(commands, "pre.py")} "$@"\n'
        f"test $? -eq {DEFER_STATUS} && exit {DEFER_STATUS}\n"
        "exit 0\n"
    )


def exitcode_script(commands: Commands) -> str:
    """In place of pegasus-exitcode: releases the paths, then becomes it, its arguments (all but
    the retry before them) and its exit code as they are."""
    return _exitcode_script(commands, "its exit code is")


def catalog_exitcode_script(commands: Commands) -> str:
    """The same as a job's own POST of a transformation catalog, called with POST_ARGUMENTS.

    For such a one the planner writes no arguments of pegasus-exitcode's, so the two that it gives
    all transfer jobs are added: where the check leaves its log and what it learnt of files.
    """
    arguments = (
        "for dag in *.dag; do break; done\n"
        "name=${dag%.dag}\n"
        'set -- "$1" "$2" -l "$name.exitcode.log" -M "$name.cache.meta" "$3"\n'
    )
    return _exitcode_script(commands, "arguments and exit code are", arguments)


def settings(pre: Path, post: Path) -> dict[str, str]:
    """The properties that make Pegasus run both for every job. Raises InputError for paths that
    DAGMan would split."""
    return {
        PRE_PROPERTY: safe_path(str(pre), "PRE script"),
        f"{PRE_PROPERTY}.arguments": PRE_ARGUMENTS,
        # The planner writes it into the DAG as it is, before pegasus-exitcode's own arguments.
        POST_PATH_PROPERTY: f"{safe_path(str(post), 'POST script')} {POST_RETRY}",
    }


def preferred_properties() -> dict[str, str]:
    """Properties in which a user's own choice is as good, and is kept."""
    return {"dagman.maxpre": str(MAX_PRE)}


def safe_path(path: str, what: str) -> str:
    """``path`` where DAGMan's script lines can carry it. Raises InputError for white space."""
    if re.search(r"[\s\"'$]", path):
        raise InputError(
            f"{what}: found {path!r}, expected a path without blanks, quotes or $, which DAGMan "
            "cannot quote in its script lines"
        )
    return path


def planned_config(dag: Path) -> Path | None:
    """The hooks' configuration that a planned DAG runs its hooks with; None if it has none.

    Raises InputError for a DAG that cannot be read.
    """
    try:
        lines = dag.read_text(encoding="utf-8", errors="replace").splitlines()
        pre = next((match for line in lines if (match := _PRE_LINE.match(line))), None)
        arguments = pre[1].split() if pre else []
        if arguments and "--config" not in arguments:  # a script of ours has it inside
            text = (dag.parent / arguments[0]).read_text(encoding="utf-8", errors="replace")
            arguments = next((shlex.split(x) for x in text.splitlines() if " --config " in x), [])
    except (OSError, ValueError) as error:
        raise InputError(f"{dag}: its hooks' configuration cannot be found: {error}") from error
    named = arguments[arguments.index("--config") + 1 :] if "--config" in arguments else []
    return dag.parent / named[0] if named else None


def _exitcode_script(commands: Commands, whose: str, arguments: str = "") -> str:
    check = shlex.quote(commands.exitcode)
    return (
        f"#!/bin/sh\n{MARK}releases a job's paths, then runs pegasus-exitcode; {whose} its own.\n"
        'retry=\ncase "$1" in [0-9]*) retry=$1 && shift ;; esac\n'
        f"{arguments}{_NOTHING_ASKED.replace('CHECK', check)}"
        f'{_hook(commands, "post.py")} --retry "$retry" -- "$@"\n'
        f'exec {check} "$@"\n'
    )


def _hook(commands: Commands, script: str) -> str:
    command = [commands.python, "-I", "-S", str(_HOOKS / script), "--config", commands.config]
    return shlex.join(command)
