"""Whose process this is. In a container the system may know neither a name nor a home."""

from __future__ import annotations

import getpass
import os
import pwd
from pathlib import Path


def home() -> Path:
    """The user's home, ``/`` where nobody says one."""
    path = os.path.expanduser("~")  # noqa: PTH111 - Path's raises where there is no home
    return Path(path if path.startswith("/") else "/")


def user_name(uid: int | None = None) -> str:
    """A user's name, the number where the system knows none. By default of this process's, which
    the environment may name otherwise."""
    try:
        return getpass.getuser() if uid is None else pwd.getpwuid(uid).pw_name
    except (KeyError, OSError):
        return str(os.getuid() if uid is None else uid)
