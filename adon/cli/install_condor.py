"""``adon install condor``: paths for the files that HTCondor itself moves, and more for it."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli import install_execute, install_expander
from adon.cli.install_ask import (
    CHANGES,
    blocking_path,
    confirm_changes,
    daemon_user,
    hooks_token,
    notes,
    refuse_foreign,
    settings_removal,
    site_hooks,
    this_python,
    value_of,
)
from adon.cli.parsing import DEFAULT_BROKER, config, flag, one_of, option
from network_provisioner.base.errors import InputError

if TYPE_CHECKING:
    from condor_plugins.transfers.setup import TransferSettings
    from pegasus_hooks.install.edits import FileEdit

CONFIG_DIR = Path("/etc/condor/config.d")
NAME, HOOKS = "99-adon-transfers", "adon-transfers.json"
OPTIONS = (
    option(
        "--config-dir", "HTCondor's LOCAL_CONFIG_DIR", "DIR", Path,
        default=CONFIG_DIR,
    ),
    one_of(
        flag("--execute", "on an execute machine: add site and metrics to its slot ads"),
        flag("--expander", "let condor_master run the expander, which grows and shrinks the pool"),
    ),
    option("--site", "site of this machine, by its name in the topology", "NAME"),
    flag("--irods", "with --execute: let HTCondor move irods:// URLs, too"),
    option(
        "--interface", "with --execute: interface whose traffic is reported (default: that of "
        "the default route)", "NAME", default="default",
    ),
    config("adon.yml: the broker's address, URLs of sites; with --expander, the pool", None),
    option(
        "--broker", f"the broker's address (default: that of --config, else {DEFAULT_BROKER}; with "
        "--execute: none)", "URL",
    ),
    hooks_token("the hooks, which run as the job's owner"),
    option(
        "--watch-token-file", "file with the watcher's token, of role engineer, since it acts for "
        "all users (default: --token-file)", "FILE",
    ),
    option("--project", "project of transfers whose job names none", "PROJECT"),
    option(
        "--redirector", "director that names OSDF caches (default: the sites of the URLs)",
        "URL",
    ),
    *CHANGES,
)  # fmt: skip


def condor(args: argparse.Namespace) -> int:
    """Install ADON into an HTCondor access point, execute machine or pool, or remove it.

    On an access point, jobs whose files HTCondor moves (Pegasus in condorio mode, or no Pegasus at
    all) get a path while their input is sent, and while their output is fetched. Submit files do
    not change. Shows the two files that it writes, and asks first.

    With --execute, on an execute machine, slots advertise their site, I/O wait, disk and network
    rates, and the available bandwidth from and to other sites, for Rank and Requirements. ADON
    counts fewer workers where cores wait for disks. With --irods, HTCondor also moves files of
    irods:// URLs there.

    With --expander, on the machine of the collector or an access point, condor_master runs 'adon
    pool run', which starts machines for waiting and expected jobs, and stops idle ones.

    Execute machines must name their site in AdonSite or PegasusSite (STARTD_ATTRS), which --execute
    sets.

    Examples:
      adon install condor --site local --dry-run             show the files
      adon install condor --site local --config /etc/adon.yml
      adon install condor --config-dir ~/condor/config.d --site local
      adon install condor --execute --site tacc --broker http://192.0.2.1:8470
      adon install condor --undo                             remove it
      adon install condor --execute --undo
      adon install condor --expander --config /etc/adon.yml

    Exit codes: 0 done, or nothing to do; 1 you declined; 2 it cannot be installed there, and
    nothing was changed.
    """
    from pegasus_hooks.install.edits import carry_out, check_writable, installation_lock

    to_install, to_undo = _to_install, _to_undo
    if args.execute:
        to_install, to_undo = install_execute.to_install, install_execute.to_undo
    elif args.expander:
        to_install, to_undo = install_expander.to_install, install_expander.to_undo
    folder = args.config_dir.expanduser().absolute()
    if not folder.is_dir():
        raise InputError(f"{folder}: found no folder, expected HTCondor's LOCAL_CONFIG_DIR")
    with installation_lock(folder):
        edits = to_undo(folder) if args.undo else to_install(args, folder)
        needed = [change for change in edits if change.needed]
        if not needed:
            state = "no ADON" if args.undo else "ADON is installed as asked"
            print(f"nothing to do: {state} in {folder}")
            return 0
        check_writable(needed)
        if not confirm_changes(args, needed):
            return 0 if args.dry_run else 1
        carry_out(needed)
    if args.undo:
        print("taken out: " + ", ".join(str(change.path) for change in needed))
    elif args.expander:
        print("installed: what makes the pool larger and smaller")
        for line in install_expander.verification_lines(args.config):
            print(line)
    elif args.execute:
        print("installed: the attributes of this machine's slots")
        for line in install_execute.verification_lines(folder, args.interface):
            print(f"verified: {line}")
    else:
        print("installed: paths for the files that HTCondor moves")
        for line in _notes(args):
            print(f"note: {line}")
    print("to apply it: condor_reconfig")
    return 0


def _to_install(args: argparse.Namespace, folder: Path) -> list[FileEdit]:
    from condor_plugins.transfers import setup
    from pegasus_hooks.install.edits import FileEdit, read

    if not args.site:
        raise InputError("found no --site, expected the site of this access point")
    path, hooks = folder / NAME, folder.parent / HOOKS
    before, hooks_before = read(path), read(hooks)
    _refuse_others(folder, path, before)
    had = None if before is None else setup.hooks_of(before)
    refuse_foreign(hooks, hooks_before is not None and had != hooks)
    return [
        FileEdit(hooks, hooks_before, _hooks(args)),
        FileEdit(path, before, setup.text(_settings(args, hooks)).encode()),
    ]


def _hooks(args: argparse.Namespace) -> bytes:
    """What the hook goes by, with what the network's description says of URLs."""
    from adon.config.adon_yml import load_config
    from network_provisioner.topology.data import sources_of

    sources = {} if args.config is None else sources_of(load_config(args.config).topology)
    return site_hooks(args, project=args.project, sources=sources, redirector=args.redirector)


def _to_undo(folder: Path) -> list[FileEdit]:
    from condor_plugins.transfers import setup
    from pegasus_hooks.install.edits import read

    path = folder / NAME
    before = read(path)
    if before is None:
        return []
    _refuse_others(folder, path, before)
    return settings_removal(path, before, setup.hooks_of(before))


def _refuse_others(folder: Path, path: Path, before: bytes | None) -> None:
    """Raises InputError for a file of our name that is somebody's, and for somebody's hooks."""
    from condor_plugins.transfers import setup

    refuse_foreign(path, before is not None and setup.hooks_of(before) is None)
    files = [f for f in sorted(folder.iterdir()) if f.is_file() and f != path]
    others = setup.other_hooks((str(f), f.read_text(errors="replace")) for f in files)
    if not others:
        values = {name: value_of(name) for name in (setup.SETTING, setup.FORCED)}
        others = setup.other_hooks(("HTCondor", f"{n} = {v}") for n, v in values.items() if v)
    if others:
        raise InputError(f"{others}, which is your own choice and is kept; expected it unset")


def _settings(args: argparse.Namespace, hooks: Path) -> TransferSettings:
    from condor_plugins.transfers.setup import TransferSettings

    token = args.watch_token_file
    return TransferSettings(
        str(this_python()),
        hooks,
        daemon_user(),
        "" if token is None else str(Path(token).absolute()),
        args.site,
    )


def _notes(args: argparse.Namespace) -> Iterator[str]:
    """What keeps it from working, as far as can be seen from here."""
    from condor_plugins.transfers import setup

    yield from notes(args)
    if shutil.which("condor_config_val") and value_of(setup.SETTING) != setup.KEYWORD:
        yield f"HTCondor does not read {args.config_dir}: is it its LOCAL_CONFIG_DIR?"
    python = this_python()
    shut = blocking_path(python)
    if shut is not None:
        yield f"jobs' owners cannot run {python}: {shut} is closed to them"
