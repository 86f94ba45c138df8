"""Follow workflows: the eight fields of their status, until done or failed."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from adon.commands.parsing import Nouns, add_command, add_json, add_noun

if TYPE_CHECKING:
    from monitors.status import Status
    from monitors.submit_dir import SubmitDir

_RUN = """Follow submit directories until every workflow is done, failed or removed.

Prints a line at every change and records status, run times and queue waits in the archive, from
which later placements learn. Following twice records nothing twice.
"""
_RUN_MORE = """
Examples:
  adon monitor run submit/me/pegasus/soykb/run0001
  adon monitor run run0001 run0002 --archive .adon/archive.sqlite

Exit codes: 0 all are done; 1 one failed or was removed; 2 a directory or the archive is bad.
"""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon monitor run``."""
    run = add_command(add_noun(nouns, "monitor", __doc__), "run", _RUN, _run, _RUN_MORE)
    run.add_argument("dirs", nargs="+", type=Path, metavar="DIR", help="submit directory")
    run.add_argument(
        "--archive", type=Path, default=Path("adon-archive.sqlite"), metavar="FILE",
        help="where measurements go; made where it is not there (default: ./%(default)s)",
    )  # fmt: skip
    add_json(run, "print one JSON object per line and change")


def _run(args: argparse.Namespace) -> int:
    from monitors.archive import Archive
    from monitors.follow import Follower
    from monitors.status import State, status_text
    from monitors.submit_dir import SubmitDir

    def show(submit_dir: SubmitDir, status: Status) -> None:
        text = _as_json(submit_dir, status) if args.json else status_text(status, submit_dir.name)
        print(text, flush=True)

    logging.basicConfig(format="adon: %(message)s")
    for submit_dir in args.dirs:
        SubmitDir(submit_dir)  # refused before an archive is made
    with Archive(args.archive) as archive:
        last = Follower(args.dirs, archive, on_status=show).run()
    done = all(status is not None and status.state is State.DONE for status in last.values())
    return 0 if done else 1


def _as_json(submit_dir: SubmitDir, status: Status) -> str:
    data = {
        "dir": str(submit_dir.path),
        "workflow": submit_dir.name,
        **status.fields(),
        "state": str(status.state),
        "at": status.at,
    }
    return json.dumps(data)
