"""Install ADON into Pegasus or HTCondor, or remove it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli import install_condor
from adon.cli.install_ask import (
    CHANGES,
    blocking_path,
    hook_config,
    hooks_token,
    install,
    notes,
    still_needed,
    this_python,
    undo,
)
from adon.cli.parsing import DEFAULT_BROKER, Noun, config, flag, option
from network_provisioner.base import account
from network_provisioner.base.errors import InputError

if TYPE_CHECKING:
    from pegasus_hooks.install.home import InstallTarget, PegasusHome
    from pegasus_hooks.install.parts import InstallPart
    from pegasus_hooks.install.verify import Verification

NOUN = Noun("install", __doc__)
_PARTS = ("selector", "hooks")
_UNREAD = (
    "before 5.1.3 Pegasus reads no ~/.pegasusrc where there is a pegasus.properties or --conf: "
    "install --me --only selector, and the hooks into that file by --properties FILE"
)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected seconds above 0, at most 86400")
    return value


@NOUN.verb(
    "pegasus",
    option(
        "--home", "the Pegasus installation (default: that of the pegasus-plan on PATH)", "DIR",
        Path,
    ),
    flag("--me", "for yourself only: your shell's start file and ~/.pegasusrc"),
    option(
        "--catalog", "only the hooks, as an entry pegasus::transfer in this transformation catalog",
        "FILE", Path,
    ),
    option(
        "--properties", "only the hooks, in this property file of pegasus-plan --conf", "FILE", Path
    ),
    option("--only", "only this part; the other does not change (default: both)", choices=_PARTS),
    flag(
        "--callout", "use Pegasus's callout instead of the plug-in; the planner sleeps 5 s per job"
    ),
    config("adon.yml: archive, network and broker (default: the catalogs alone)", None),
    option(
        "--timeout", "seconds to map a workflow; then a built-in rule maps it (default: 30)", "S",
        _seconds,
    ),
    option(
        "--broker", f"the broker's address (default: that of --config, else {DEFAULT_BROKER})",
        "URL",
    ),
    hooks_token("the hooks"),
    flag("--ahead", "reserve paths in advance for whole workflows"),
    *CHANGES,
)  # fmt: skip
def _pegasus(args: argparse.Namespace) -> int:
    """Install site selection and hooks into a Pegasus, or remove them.

    Shows the changes and asks first. For all users of the installation, adds a jar beside Pegasus's
    own, two scripts, and a block of settings in etc/pegasus.properties; pegasus-plan and
    pegasus-run do not change. Then plans a workflow of two jobs, and undoes all changes if one of
    the parts is not in the plan.

    Examples:
      adon install pegasus --home /opt/pegasus --dry-run     show the changes
      adon install pegasus --home /opt/pegasus --config /etc/adon.yml
      adon install pegasus --only hooks                      paths for transfers; sites as before
      adon install pegasus --me                              for yourself, in your own files
      adon install pegasus --properties pegasus.properties   hooks for plans with this file
      adon install pegasus --catalog transformations.yml     the same, with this catalog
      adon install pegasus --home /opt/pegasus --callout     if no jar may be added: 5 s per job
      adon install pegasus --home /opt/pegasus --undo        remove it

    Exit codes: 0 done, or nothing to do; 1 you declined, or ADON was not in the plan and all
    changes are undone; 2 it cannot be installed there, and nothing was changed.
    """
    from pegasus_hooks.install.edits import installation_lock

    if args.catalog is not None or args.properties is not None:
        return _run_file(args)
    home = _home(args)
    places = _places(args, home)
    with installation_lock(places[0].lock):
        if args.undo:
            return undo(args, places, _keep(args))
        return _install(args, home, places)


NOUN.verb("condor", *install_condor.OPTIONS)(install_condor.condor)


def _home(args: argparse.Namespace) -> PegasusHome | None:
    """The Pegasus; what is one user's can be changed without."""
    from pegasus_hooks.install.home import home_at, home_on_path

    if args.home is not None:
        return home_at(args.home)
    try:
        return home_on_path()
    except InputError:
        if args.undo and (args.me or args.catalog or args.properties):
            return None
        if args.me and args.only == "selector":
            return None
        raise


def _places(args: argparse.Namespace, home: PegasusHome | None) -> list[InstallTarget]:
    from pegasus_hooks.install.home import place_for_all, place_for_user

    if not args.me:
        assert home is not None
        return [place_for_all(home)]
    own, shell = account.home(), os.environ.get("SHELL", "")
    for_user = place_for_user(own, shell, args.callout)
    # Whichever way it was installed before, and whatever the shell was then.
    every = [place_for_user(own, "", True)]
    every += [place_for_user(own, other, False) for other in ("bash", "zsh", "sh")]
    return [for_user, *(place for place in every if place.settings != for_user.settings)]


def _keep(args: argparse.Namespace) -> Collection[str]:
    """The parts that are not asked for, and stay as they are."""
    return {name for name in _PARTS if args.only is not None and name != args.only}


def _parts(
    args: argparse.Namespace, home: PegasusHome | None, place: InstallTarget
) -> list[InstallPart]:
    from adon.config.adon_yml import load_config
    from pegasus_hooks.install.parts import hooks_part

    if args.config is not None:
        load_config(args.config)
    parts = []
    python = str(this_python())
    if args.only != "hooks":
        parts.append(_selector(args, python))
    if args.only != "selector":
        assert home is not None
        exitcode = home.root / "bin" / "pegasus-exitcode"
        config = hook_config(args, args.ahead)
        parts.append(hooks_part(place.programs, python, exitcode, config))
    return parts


def _selector(args: argparse.Namespace, python: str) -> InstallPart:
    from adon.planning.jar import planner_jar
    from pegasus_hooks.install.parts import callout_part, plugin_part

    if args.callout:
        return callout_part(python, args.config, args.timeout)
    jar = planner_jar(progress=print)
    try:
        content = jar.read_bytes()
    except OSError as error:
        raise InputError(f"{jar}: {error.strerror}, expected the planner plug-in") from None
    return plugin_part(content, python, args.config, args.timeout)


def _install(
    args: argparse.Namespace, home: PegasusHome | None, places: Sequence[InstallTarget]
) -> int:
    from pegasus_hooks.install.installing import changes_to_install

    place = places[0]
    parts = _parts(args, home, place)
    keep = _keep(args)
    # A jar that is no longer wanted may still have sub-workflows to plan.
    in_use = still_needed(
        place, {*keep, *(part.name for part in parts if part.jars or part.programs)}
    )
    edits = changes_to_install(place, parts, places[1:], keep, in_use)
    check = partial(_verified, args, home, place, parts) if home is not None else None
    code = install(args, place, edits, parts, check)
    if not code and not args.dry_run and args.only != "hooks":
        _warm()
    if code is not None:
        return code
    for line in _notes(args, place, parts):
        print(f"note: {line}")
    if place.shell and args.only != "hooks":
        print(f"from the next shell on; in this one: . {place.settings}")
    return 0


def _warm() -> None:
    """Compile what large workflows need, so that the first of them does not wait for it.

    In a process of its own: what it prints is its own affair, and it is no reason to fail.
    """
    from site_selector import warm

    if warm.done():
        return
    print("preparing for large workflows (once, up to a minute)", flush=True)
    command = [sys.executable, "-I", "-m", "site_selector.warm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not warm.done():
        lines = done.stderr.strip().splitlines()
        print(f"note: not compiled beforehand: {lines[-1] if lines else done.returncode}")


def _notes(
    args: argparse.Namespace, place: InstallTarget, parts: Sequence[InstallPart]
) -> Iterator[str]:
    """What keeps an installation from being one, for some or for all."""
    from pegasus_hooks.install.installing import own_choice, own_post

    hooks = [part for part in parts if part.scripts is not None]
    rc = account.home() / ".pegasusrc"
    if not args.me:
        for part in parts:
            mine = own_choice(rc, [part])
            if mine is not None:
                yield f"{mine}, which wins for you"
        python = this_python()
        shut = blocking_path(python)
        if shut is not None:
            yield f"other users cannot run {python}: {shut} is closed to them"
    if not hooks:
        return
    for file in dict.fromkeys((*place.files, rc)):
        post = None if place.shell and file == place.settings else own_post(file)
        if post is not None:
            yield (
                f"{post}, which runs instead of pegasus-exitcode, and so of ADON's POST: paths are "
                "released by the watcher, and no transfer is recorded"
            )
    yield from notes(args)


def _verified(
    args: argparse.Namespace, home: PegasusHome, place: InstallTarget, parts: Sequence[InstallPart]
) -> Verification:
    """Plan two jobs and judge."""
    from pegasus_hooks.install.installing import environment
    from pegasus_hooks.install.verify import NOT_IN_THE_PLAN, verify

    environ = dict(os.environ)
    if place.shell:
        environ |= environment(place, parts)
    verification = verify(home, parts, environ, own_home=args.me)
    unread = (
        args.me and verification.good is False and verification.said.startswith(NOT_IN_THE_PLAN)
    )
    return replace(verification, said=f"{verification.said}; {_UNREAD}") if unread else verification


def _run_file(args: argparse.Namespace) -> int:
    """Install the hooks into a catalog or a property file, or undo that. Raises InputError."""
    from pegasus_hooks.install.edits import installation_lock
    from pegasus_hooks.install.home import place_for_file

    option = "--properties" if args.catalog is None else "--catalog"
    for name, given in (
        ("--properties", args.properties and args.catalog), ("--me", args.me),
        ("--callout", args.callout), ("--timeout", args.timeout),
        ("--only selector", args.only == "selector"),
    ):  # fmt: skip
        if given:
            raise InputError(f"{option}: found with {name}, expected one of them")
    home = _home(args)
    place = place_for_file(args.catalog or args.properties)
    with installation_lock(place.lock):
        if args.undo:
            return undo(args, [place], {"selector"})
        assert home is not None
        return _install_file(args, home, place)


def _install_file(args: argparse.Namespace, home: PegasusHome, place: InstallTarget) -> int:
    from pegasus_hooks.install.catalog import catalog_part, changes_for_catalog, entry
    from pegasus_hooks.install.installing import changes_to_install
    from pegasus_hooks.install.parts import hooks_part
    from pegasus_hooks.install.verify import verify

    python, config = str(this_python()), hook_config(args, args.ahead)
    if args.catalog is None:
        exitcode = home.root / "bin" / "pegasus-exitcode"
        part = hooks_part(place.programs, python, exitcode, config)
        edits = changes_to_install(place, [part], keep={"selector"})
        lines = {"settings": part.lines()}
    else:
        part = catalog_part(place, home, python, config)
        edits = changes_for_catalog(place, home, part)
        lines = {"catalog_entry": entry(home, part)}
    added = {name: "".join(f"{line}\n" for line in new_lines) for name, new_lines in lines.items()}
    check = partial(verify, home, [part], os.environ, False, **added)
    code = install(args, place, edits, [part], check)
    for line in notes(args) if code is None else ():
        print(f"note: {line}")
    return code or 0
