"""What a job's submit file says, in the one form that Pegasus writes: a command to a line.

    universe = local                          a command
    +pegasus_site = "mu"                      an attribute, which may also be written MY.name

Standard library only: the hooks import this.
"""

from __future__ import annotations

import re
from pathlib import Path

TRANSFER = "pegasus::transfer"  # the transformation of Pegasus's own transfer jobs
LOCAL_UNIVERSES = ("local", "scheduler")  # run on the submit host itself
_MOST_BYTES = 1 << 20  # of a submit file; Pegasus writes a few thousand


def read(path: Path) -> str:
    """The text of a submit file; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def attribute(text: str, name: str) -> str:
    """The value of an attribute of the job's ad without its quotes; empty where it is not set."""
    return _last(text, rf"(?:\+|MY\.){re.escape(name)}")


def command(text: str, name: str) -> str:
    """The value of a submit command; empty where it is not set."""
    return _last(text, re.escape(name))


def _last(text: str, name: str) -> str:
    """As condor_submit: the last one counts, upper and lower case are one."""
    found = re.findall(rf"^[ \t]*{name}[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.I | re.M)
    return found[-1].strip("\"'") if found else ""
