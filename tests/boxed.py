"""Tests that run in a box with something large beside them, by a command of their own.

Downloads happen outside of the box, everything else inside: when the process ends, however it does,
the kernel removes what was started, and its network.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from adon.machine import box
from network_provisioner.base.errors import AdonError


def say(line: str) -> None:
    """Progress, at once."""
    print(line, file=sys.stderr, flush=True)


def main(
    what: str,
    folder: Path,
    run_dir: Path,
    ensure: Callable[[], object],
    world: Callable[[], AbstractContextManager[object]],
) -> int:
    """Run the tests in ``folder``, the package ``tests.<its name>``, with the command's arguments.

    ``ensure`` has everything that is downloaded. ``world`` starts ``what`` in ``run_dir``, and
    gives the pytest plug-in that carries it.
    """
    arguments = sys.argv[1:]
    try:
        if not box.inside():
            reason = box.can_box()
            if reason is not None:
                say(f"{what} cannot be tried here: {reason}")
                return 2
            ensure()
            return box.run([sys.executable, "-m", f"tests.{folder.name}", *arguments], tied=True)
        # What a killed run left.
        shutil.rmtree(run_dir, ignore_errors=True)
        run_dir.mkdir(parents=True)
        with world() as plugin:
            words = ["-v", "-p", "no:cacheprovider", f"--basetemp={run_dir / 'tests'}", str(folder)]
            code = pytest.main([*words, *arguments], plugins=[plugin])
    except AdonError as error:
        say(str(error))
        return 2
    if code == 0:
        shutil.rmtree(run_dir, ignore_errors=True)
    else:
        say(f"logs are in {run_dir}")
    return int(code)
