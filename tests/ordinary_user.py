"""Running a command, or this process, as an ordinary user, from a test that root runs."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ACCOUNT = "nobody"
_CLONE_NEWNS = 0x20000  # see unshare(2)

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

    None if this is one already. Skips the test where it cannot be arranged.
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
    user = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    private = ["unshare", "--mount", "--propagation", "private", "--"]
    return [*private, *_show(needed), "setpriv", *user, "--"]


def _show(needed: Sequence[Path]) -> list[str]:
    """The words before a command that may then reach ``needed``, for any user."""
    hidden = {str(path): above for path in needed if (above := closed(path))}
    return ["sh", "-c", _SHOW, "sh", *hidden, "--", *sorted(set(hidden.values())), "--"]


def show_here(needed: Sequence[Path]) -> None:
    """Let every user reach ``needed``, for this process and its children alone. Needs root; raises
    OSError or CalledProcessError where the system refuses."""
    if not any(map(closed, needed)):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "a mount namespace of its own")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run([*_show(needed), "true"], check=True)


def closed(path: Path) -> str | None:
    """The outermost directory above ``path`` that others may not enter."""
    parents = (p for p in reversed(path.resolve().parents) if not p.stat().st_mode & 0o001)
    return str(next(parents, "")) or None


def given_to_user(folder: Path) -> Path:
    """The same folder, which the ordinary user may write to and reach."""
    if os.geteuid() == 0:
        shutil.chown(folder, pwd.getpwnam(ACCOUNT).pw_uid, pwd.getpwnam(ACCOUNT).pw_gid)
    return folder
