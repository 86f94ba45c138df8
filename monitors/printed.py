"""What other programs print: HTCondor's commands and Pegasus's."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_log = logging.getLogger(__name__)

PATIENCE_S = 20.0

Run = Callable[[Sequence[str]], str | None]
Ad = Mapping[str, Any]


def printed(
    command: Sequence[str], patience_s: float = PATIENCE_S, level: int = logging.INFO
) -> str | None:
    """What a command prints; None where it is not there, fails, or takes longer than ``patience_s``
    seconds. The reason is logged with ``level``."""
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience_s,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _log.log(level, "%s: %s", command[0], error)
        return None
    if done.returncode:
        why = done.stderr[-300:].decode(errors="replace").strip()
        _log.log(level, "%s: exit code %d: %s", command[0], done.returncode, why)
        return None
    return done.stdout.decode(errors="replace")


def ads(text: str | None) -> list[Ad] | None:
    """The jobs in what a command of HTCondor's printed with ``-json``: no job may be no text. None
    where nobody answered, or with something else."""
    if text is None:
        return None
    try:
        found = json.loads(text) if text.strip() else []
    except (ValueError, RecursionError):
        return None
    return [ad for ad in found if isinstance(ad, dict)] if isinstance(found, list) else None
