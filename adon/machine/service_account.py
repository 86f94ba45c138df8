"""As whom the broker runs, and how root sees files as that user does."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from network_provisioner.base import account

SERVICE = Path("/etc/adon"), "/var/lib/adon"  # configuration and state of the package
_USER = "adon"  # packaging/adon.sysusers


def service_user(config: Path) -> pwd.struct_passwd | None:
    """The user of the package's services where they have the configuration ``config``."""
    if config.absolute().parent != SERVICE[0]:
        return None
    try:
        return pwd.getpwnam(_USER)
    except KeyError:
        return None


@contextmanager
def as_broker(config: Path, kept: Path) -> Iterator[str]:
    """As the user that the broker of ``config`` runs as, where we may: the service's, else whose
    its file ``kept`` is; the user's name. Raises OSError."""
    before = os.geteuid(), os.getegid(), os.getgroups()
    user = _user_of(config, kept) if before[0] == 0 else None
    if user is None or user.pw_uid == 0:
        yield account.user_name(before[0])
        return
    os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
    os.setegid(user.pw_gid)
    os.seteuid(user.pw_uid)
    try:
        yield user.pw_name
    finally:
        os.seteuid(before[0])
        os.setegid(before[1])
        os.setgroups(before[2])


def _user_of(config: Path, kept: Path) -> pwd.struct_passwd | None:
    if (user := service_user(config)) or not kept.exists():
        return user
    try:
        return pwd.getpwuid(kept.stat().st_uid)
    except KeyError:  # not known on this machine
        return None
