"""``adon install condor --execute``: what an execute machine advertises."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.install_ask import (
    blocking_path,
    output_of,
    refuse_foreign,
    settings_removal,
    site_hooks,
    this_python,
    value_of,
)
from network_provisioner.base.errors import AdonError, InputError, MissingError

if TYPE_CHECKING:
    from pegasus_hooks.install.edits import FileEdit

NAME, HOOKS, PLUGIN = "99-adon-startd", "adon-startd.json", "adon-irods-plugin"


def to_install(args: argparse.Namespace, folder: Path) -> list[FileEdit]:
    """The files that are wanted. Raises InputError."""
    from condor_plugins.startd import setup
    from pegasus_hooks.install.edits import FileEdit, read

    if not args.site:
        raise InputError("found no --site, expected the site of this machine")
    path, hooks = folder / NAME, folder.parent / HOOKS
    before, hooks_before = read(path), read(hooks)
    refuse_foreign(path, before is not None and not setup.is_ours(before))
    had = None if before is None else setup.hooks_of(before)
    refuse_foreign(hooks, hooks_before is not None and had != hooks)
    plugin = folder.parent / PLUGIN
    plugin_before = read(plugin)
    moves = None if before is None else setup.plugin_of(before)
    refuse_foreign(plugin, plugin_before is not None and moves != plugin)
    asks = args.broker is not None or args.config is not None
    wanted = setup.StartdMetrics(
        str(this_python()), args.site, args.interface, hooks if asks else None,
        plugin=plugin if args.irods else None,
    )  # fmt: skip
    named = FileEdit(hooks, hooks_before, site_hooks(args) if asks else None)
    program = FileEdit(plugin, plugin_before, _plugin(plugin) if args.irods else None, mode=0o755)
    settings = FileEdit(path, before, setup.text(wanted).encode())
    # No settings shall name a file that is not there.
    files = [named, program]
    return [*(f for f in files if f.after), settings, *(f for f in files if not f.after)]


def _moves_irods(program: str) -> bool:
    try:
        lines = output_of([program, "-classad"]).splitlines()
    except InputError:  # HTCondor passes it over, too
        return False
    return any("irods" in line for line in lines if line.startswith("SupportedMethods"))


def _plugin(path: Path) -> bytes:
    """A program that starts the transfer plug-in. Raises InputError and MissingError."""
    from condor_plugins.irods import plugin
    from condor_plugins.startd.setup import PLUGINS

    if find_spec("irods") is None:
        raise MissingError("found no python-irodsclient: pip install 'adon-wms[irods]'")
    others = set(value_of(PLUGINS).replace(",", " ").split()) - {str(path)}
    if served := sorted(filter(_moves_irods, others)):
        raise InputError(f"{served[0]} moves files of irods:// already, expected none to do so")
    command = [str(this_python()), "-I", plugin.__file__]
    return f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'.encode()


def to_undo(folder: Path) -> list[FileEdit]:
    """The files that are to go. Raises InputError."""
    from condor_plugins.startd import setup
    from pegasus_hooks.install.edits import read

    path = folder / NAME
    before = read(path)
    if before is None:
        return []
    refuse_foreign(path, not setup.is_ours(before))
    return settings_removal(path, before, setup.hooks_of(before), setup.plugin_of(before))


def verification_lines(folder: Path, interface: str) -> Iterator[str]:
    """What the programs say that the startd will start, a line for each."""
    from condor_plugins.startd import paths, setup
    from pegasus_hooks.install.edits import read

    content = read(folder / NAME) or b""
    with tempfile.TemporaryDirectory() as place:
        host = [sys.executable, "-I", "-S", str(setup.METRICS), interface, f"{place}/state", place]
        for _ in range(2):  # a rate takes two readings
            output = output_of(host)
    lines = [line for line in output.splitlines() if " = " in line]
    missing = {"AdonIoWaitFraction", "AdonNetRxBps"} - {line.split()[0] for line in lines}
    yield f"the host reports {len(lines)} attributes" + "".join(
        f"; no {name} (--interface)" if name == "AdonNetRxBps" else f"; no {name}"
        for name in sorted(missing)
    )
    plugin = setup.plugin_of(content)
    if plugin is not None:
        yield f"{plugin} " + ("serves irods://" if _moves_irods(str(plugin)) else "does not run")
        if shut := blocking_path(this_python()):
            yield f"but jobs' users cannot run it: {shut} is closed to them"
    hooks = setup.hooks_of(content)
    if hooks is not None:
        try:
            rates = [n for n in paths.path_attributes(hooks) if n.startswith("AdonAvail")]
            yield f"the broker reports {len(rates)} bandwidths"
        except AdonError as error:  # it may be up later
            yield f"the broker reports no bandwidth now: {error}"
