"""``adon install pegasus --catalog``: the hooks for who plans with one transformation catalog."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli import install_hooks
from adon.cli.install_ask import agreed, conclude, undo

if TYPE_CHECKING:
    from pegasus_hooks.install.home import InstallTarget, PegasusHome


def run(
    args: argparse.Namespace, home_of: Callable[[argparse.Namespace], PegasusHome | None]
) -> int:
    """Install or undo. Raises InputError."""
    from network_provisioner.base.errors import InputError
    from pegasus_hooks.install.catalog import place_for_catalog
    from pegasus_hooks.install.edits import locked

    for name, given in (
        ("--user", args.user), ("--callout", args.callout), ("--timeout", args.timeout),
        ("--only selector", args.only == "selector"),
    ):  # fmt: skip
        if given:
            raise InputError(f"--catalog: found beside {name}, expected one of both")
    home = home_of(args)
    place = place_for_catalog(args.catalog)
    with locked(place.lock):
        if args.undo:
            return undo(args, [place], {"selector"})
        assert home is not None
        return _install(args, home, place)


def _install(args: argparse.Namespace, home: PegasusHome, place: InstallTarget) -> int:
    from pegasus_hooks.install.catalog import catalog_part, changes_for_catalog, entry
    from pegasus_hooks.install.edits import check_writable
    from pegasus_hooks.install.verify import verify

    python = str(Path(sys.executable).absolute())
    part = catalog_part(place, home, python, install_hooks.hook_config(args))
    wanted = changes_for_catalog(place, home, part)
    needed = [change for change in wanted if change.needed]
    if not needed:
        print(f"nothing to do: ADON is installed as asked, in {place.settings}")
        return 0
    check_writable(needed)
    if not agreed(args, needed):
        return 0 if args.dry_run else 1
    lines = "".join(f"{line}\n" for line in entry(home, part))
    if not conclude(place, wanted, [part], lambda: verify(home, [part], os.environ, False, lines)):
        return 1
    for line in install_hooks.notes(args):
        print(f"note: {line}")
    return 0
