"""How many bytes an access point sends to a slot before a job runs.

Asked of the files themselves, as the job's owner and right before they are sent. What HTCondor
noted when the job was submitted (``TransferInputSizeMB``, whole MiB) stands in where they do not
tell: too many of them, or not to be seen from here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from condor_plugins.transfers.jobad import JobAd, number, text

_MOST_FILES = 2000  # looked at: about 10 ms on a local disk
_NOTHING = ("", "/dev/null")

Size = Callable[[str], int]


def bytes_sent(ad: JobAd, size: Size | None = None) -> int | None:
    """Bytes, None where nobody knows. ``size`` gives those of a file or folder by its absolute
    path and raises OSError."""
    names = list(_names(ad))
    measure = size or _Sizes()
    base = text(ad, "Iwd")
    try:
        # os.path, since a hook that runs before every job has no time for pathlib.
        return sum(measure(os.path.join(base, name)) for name in names)  # noqa: PTH118
    except OSError:
        noted = number(ad, "TransferInputSizeMB")
        return None if noted is None or noted < 0 else int(noted * 2**20)


def _names(ad: JobAd) -> Iterator[str]:
    """What is sent from here; what a URL names comes from elsewhere."""
    for name in text(ad, "TransferInput").split(","):
        if name.strip() and "://" not in name:
            yield name.strip()
    if ad.get("TransferExecutable", True) is not False and text(ad, "Cmd"):
        yield text(ad, "Cmd")
    sent = ad.get("TransferIn", True) is not False and ad.get("StreamIn", False) is not True
    if sent and text(ad, "In") not in _NOTHING:
        yield text(ad, "In")


class _Sizes:
    """Sizes from the file system; raises OSError where there is too much to look at."""

    def __init__(self) -> None:
        self._left = _MOST_FILES

    def __call__(self, path: str) -> int:
        self._left -= 1
        if self._left < 0:
            raise OSError("too many files")
        found = os.stat(path)  # noqa: PTH116 - see bytes_sent
        if not stat.S_ISDIR(found.st_mode):
            return found.st_size
        with os.scandir(path) as entries:
            return sum(self(entry.path) for entry in entries)
