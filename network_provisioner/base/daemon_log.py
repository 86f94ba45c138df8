"""The log of a daemon: one line for each event, to the journal, a file of limited size, or standard
error."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from functools import lru_cache
from logging.handlers import RotatingFileHandler
from pathlib import Path

from network_provisioner.base.errors import InputError, printable

MOST_BYTES = 10_000_000  # of a file, and of the one before it
_OURS = ("adon", "condor_plugins", "monitors", "network_provisioner", "pegasus_hooks",
         "site_selector")  # fmt: skip
# As sd-daemon(3) has them.
_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}


class _Lines(logging.Formatter):
    """Time and level before a message; for the journal, which has its own time, the priority."""

    def __init__(self, for_journal: bool) -> None:
        super().__init__()
        self._for_journal = for_journal

    def format(self, record: logging.LogRecord) -> str:
        """A line; behind a fault of ours also where it happened."""
        if self._for_journal:
            head = f"<{_PRIORITIES.get(record.levelno, 2)}>"
        else:
            head = f"{_time(int(record.created), int(record.msecs))} {record.levelname} "
        lines = [printable(record.getMessage())]
        if record.exc_info:
            lines += self.formatException(record.exc_info).splitlines()
        return "\n".join(head + line for line in lines)


@lru_cache(maxsize=1)
def _second(at: int) -> tuple[str, str]:
    """A second in local time, and what that differs from UTC by."""
    text = datetime.fromtimestamp(at, UTC).astimezone().isoformat()
    return text[:-6], text[-6:]


def _time(at: int, msecs: int) -> str:
    second, offset = _second(at)
    return f"{second}.{msecs:03d}{offset}"


def log_to(file: Path | None = None, level: str = "info") -> None:
    """Have this process log into a file, or to standard error, unless it logs already. ``level`` is
    a name of :mod:`logging`, in small letters; libraries log what is a warning.

    Raises InputError for a file that cannot be written.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    try:
        handler: logging.Handler = (
            logging.StreamHandler(sys.stderr)
            if file is None
            else RotatingFileHandler(file, maxBytes=MOST_BYTES, backupCount=1, encoding="utf-8")
        )
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}, expected a file for the log") from None
    handler.setFormatter(_Lines(file is None and _is_journal()))
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in _OURS:
        logging.getLogger(name).setLevel(level.upper())


def _is_journal() -> bool:
    """Whether standard error is a stream of systemd's journal."""
    try:
        stream = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{stream.st_dev}:{stream.st_ino}"
