"""Why jobs were placed by the built-in rule, one line each, beside the answers of their planner."""

from __future__ import annotations

import os

ENDING = b".notes"


def note(folder: bytes, key: bytes, job: bytes, site: bytes, reason: str) -> None:
    """Append a line; a folder that cannot be written to is no reason to hold up a planner."""
    line = b"%s\t%s\t%s\n" % (job, site, reason.encode("utf-8", "backslashreplace"))
    try:
        out = os.open(folder + b"/" + key + ENDING, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return
    with os.fdopen(out, "wb") as stream:
        stream.write(line)
