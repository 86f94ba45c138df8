"""Running a command as an ordinary user, from a test that root runs."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

ACCOUNT = "nobody"

# Shows paths below closed directories: where one may not be entered, a file system in memory that
# has only the ways to them takes its place. Arguments: paths, "--", closed directories, "--", and
# the command. All of it is in a mount namespace that ends with the command.
_SHOW = """
set -e
mask=$(umask)
umask 022
kept=$(mktemp -d)
mount -t tmpfs adon-test "$kept"
number=0
for path; do
  [ "$path" != -- ] || break
  number=$((number + 1))
  mkdir "$kept/$number"
  mount --rbind "$path" "$kept/$number"
  eval "path$number=\\$path"
done
shift $((number + 1))
while [ "$1" != -- ]; do
  mount -t tmpfs -o mode=755 adon-test "$1"
  shift
done
shift
while [ "$number" -gt 0 ]; do
  eval "path=\\$path$number"
  mkdir -p "$path"
  mount --rbind "$kept/$number" "$path"
  number=$((number - 1))
done
umount -R "$kept"
rmdir "$kept"
umask "$mask"
exec "$@"
"""


def as_ordinary_user(needed: Sequence[Path]) -> list[str]:
    """The words before a command so that an ordinary user runs it, who can read ``needed``.

    None where this is one already. Skips the test where it cannot be arranged.
    """
    if os.geteuid() != 0:
        return []
    try:
        account = pwd.getpwnam(ACCOUNT)
    except KeyError:
        pytest.skip(f"there is no account {ACCOUNT}")
    missing = [p for p in ("unshare", "mount", "setpriv") if shutil.which(p) is None]
    if missing:
        pytest.skip(f"the demo cannot be run as {ACCOUNT} without {' and '.join(missing)}")
    hidden = {str(path): closed for path in needed if (closed := _closed(path))}
    user = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    private = ["unshare", "--mount", "--propagation", "private", "--"]
    ways = [*hidden, "--", *sorted(set(hidden.values())), "--"]
    return [*private, "sh", "-c", _SHOW, "sh", *ways, "setpriv", *user, "--"]


def _closed(path: Path) -> str | None:
    """The outermost directory above ``path`` that others may not enter."""
    found = (p for p in reversed(path.resolve().parents) if not p.stat().st_mode & 0o001)
    return str(next(found, "")) or None


def given_to_user(folder: Path) -> Path:
    """The same folder, which the ordinary user may write to and reach."""
    if os.geteuid() == 0:
        shutil.chown(folder, pwd.getpwnam(ACCOUNT).pw_uid, pwd.getpwnam(ACCOUNT).pw_gid)
    return folder
