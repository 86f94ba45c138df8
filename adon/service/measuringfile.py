"""The file in which a broker keeps what it measures: its own, however many are in one folder."""

from __future__ import annotations

import fcntl
import logging
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from network_provisioner.base.errors import InputError
from network_provisioner.stores.database_url import is_database_url

EARLIER = "adon-measuring.sqlite"
"""What it was called for every broker of a folder."""
_log = logging.getLogger(__name__)


def measuring_file(state: str, folder: Path) -> Path:
    """``NAME.measuring.sqlite``: beside a broker's state where that is a file ``NAME.…``, in
    ``folder`` where it is a database ``NAME``."""
    if is_database_url(state):
        name = re.sub(r"[^\w.-]", "", urlsplit(state).path) or "adon"
        return folder / f"{name}.measuring.sqlite"
    path = Path(state).absolute()
    return path.with_name(f"{path.stem}.measuring.sqlite")


def take_over(path: Path) -> bool:
    """Give the file of an earlier version, which stands beside it, the name ``path``: whether it
    was done. The first broker that is started anew has it. Raises InputError while one of the
    earlier version runs, OSError, sqlite3.Error."""
    earlier = path.with_name(EARLIER)
    if path.exists() or not earlier.exists():
        return False
    with Path(f"{earlier}.lock").open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{earlier}: a broker of an earlier version has it, expected that one to be stopped"
            ) from None
        if not earlier.exists():  # another one was quicker
            return False
        with closing(sqlite3.connect(earlier)) as db:  # all of it into the one file
            db.execute("PRAGMA journal_mode = DELETE")
        earlier.rename(path)
    _log.warning("%s is %s from now on", earlier, path.name)
    return True
