"""The user that a pool's processes run as.

HTCondor takes no jobs from uid 0. For root they run in a user namespace where root's files belong
to an ordinary user, whom a private copy of the user table gives a name and a home. An ordinary
user's pool runs as that user.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Sequence
from pathlib import Path

from network_provisioner.base.errors import MissingError

_NAME, _UID = "adon", 1000
_AS_USER = (
    'mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group && '
    f'exec unshare --user --map-user={_UID} --map-group={_UID} -- "$@"'
)


def user_table(text: str, user: str, number: int, entry: str) -> str:
    """``/etc/passwd`` or ``/etc/group`` with one entry in place of the one that had its name or
    number.

    :param entry: what follows the number, such as ``"1000::/home:/bin/sh"``.
    """
    taken = re.compile(rf"(?:{re.escape(user)}:|[^:]*:[^:]*:{number}(?::|\Z))")
    kept = [line for line in text.splitlines() if line and not taken.match(line)]
    return "\n".join([*kept, f"{user}:x:{number}:{entry}", ""])


class PoolUser:
    """Who runs the pool in ``run_dir``: ``name`` and ``home``.

    :raises MissingError: for a user without a name, whom HTCondor cannot serve.
    """

    def __init__(self, run_dir: Path) -> None:
        self.mapped = os.geteuid() == 0
        self._tables = run_dir / "users"
        try:
            own = pwd.getpwuid(os.geteuid())
        except KeyError:
            raise MissingError(
                f"user id {os.geteuid()}: found no name for it, expected an entry in /etc/passwd"
            ) from None
        self.name = _NAME if self.mapped else own.pw_name
        self.home = run_dir / "home" if self.mapped else Path(own.pw_dir)

    def prepare(self) -> None:
        """Write the private user tables, where there are to be any."""
        if not self.mapped:
            return
        self.home.mkdir(parents=True, exist_ok=True)
        self._tables.mkdir(parents=True, exist_ok=True)
        entries = {"passwd": f"{_UID}::{self.home}:/bin/sh", "group": ""}
        for table, entry in entries.items():
            text = (Path("/etc") / table).read_text()
            (self._tables / table).write_text(user_table(text, self.name, _UID, entry))

    def command(self, command: Sequence[str]) -> list[str]:
        """``command`` as this user. The mounts are seen by this command only."""
        if not self.mapped:
            return list(command)
        mounts = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", _AS_USER]
        return [*mounts, str(self._tables), *command]
