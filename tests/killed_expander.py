"""A daemon that dies of its own effects, once before and once after each.

    python killed_expander.py STEPS MODULE:CLASS adon's words...

``STEPS`` is a directory that gets a file for each death; the class is the cloud's driver.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from adon.cli.main import main
from condor_plugins.pool.expander.condor import Condor
from monitors.archive.archive import Archive

EFFECTS = {"start", "delete", "_card", "advertise", "drain", "record_many"}


def deadly(owner: Any, name: str, steps: Path) -> None:
    """Die of it."""
    whole = getattr(owner, name)

    def die(step: Path) -> None:
        if not step.exists():
            step.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def dies(*given: Any) -> Any:
        die(steps / f"before-{name}")
        result = whole(*given)
        die(steps / f"after-{name}")
        return result

    setattr(owner, name, dies)


if __name__ == "__main__":
    steps, driver = Path(sys.argv[1]), sys.argv[2]
    module, _, cloud = driver.partition(":")
    for owner in (getattr(importlib.import_module(module), cloud), Condor, Archive):
        for name in EFFECTS & vars(owner).keys():
            deadly(owner, name, steps)
    sys.exit(main(sys.argv[3:]))
