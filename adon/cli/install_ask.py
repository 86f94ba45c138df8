"""What every installation does: it makes a configuration of the hooks, shows its changes, asks,
carries them out, verifies them, takes them back."""

from __future__ import annotations

import argparse
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.parsing import DEFAULT_BROKER, DRY_RUN, UNDO, Option, flag, option
from network_provisioner.base.errors import AdonError, InputError

if TYPE_CHECKING:
    from network_provisioner.client.hookconfig import HookConfig
    from pegasus_hooks.install.edits import FileEdit
    from pegasus_hooks.install.home import InstallTarget
    from pegasus_hooks.install.parts import InstallPart
    from pegasus_hooks.install.verify import Verification

_LIMIT_S = 20.0
# Every user's own, made when the first workflow runs.
WATCH_FOLDER = "~/.local/state/adon/watch"
CHANGES = (DRY_RUN, flag("--yes", "do not ask"), UNDO)


def hooks_token(who: str) -> Option:
    """``--token-file`` of programs that run as others."""
    return option(
        "--token-file", f"file with the token for the broker, for {who}; ~ is each user's home",
        "FILE", Path,
    )  # fmt: skip


def this_python() -> Path:
    """Not resolved: what a virtual environment's python links to does not know its packages."""
    return Path(sys.executable).absolute()


def refuse_foreign(path: Path, foreign: bool) -> None:
    """Raises InputError for a file of a name of ours that is somebody else's."""
    if foreign:
        raise InputError(f"{path}: found a file that is not ours, expected none of this name")


def settings_removal(settings: Path, before: bytes, *named: Path | None) -> list[FileEdit]:
    """Takes out a file of HTCondor's settings, and the files that it names after it: none shall
    name a file that is no more."""
    from pegasus_hooks.install.edits import FileEdit, read

    also = [FileEdit(path, read(path), None) for path in named if path is not None]
    return [FileEdit(settings, before, None), *also]


def blocking_path(python: Path, package: Path = Path(__file__)) -> Path | None:
    """The file or folder that keeps other users from running ``python``, the program that it is a
    link to, or the ``package`` with it; None for none."""
    programs = [python]
    while programs[-1].is_symlink():
        programs.append(programs[-1].parent / programs[-1].readlink())
    programs.append(python.resolve())
    run = [*programs, *(folder for file in (*programs, package) for folder in file.parents)]
    bits = [*((path, stat.S_IXOTH) for path in run), (package, stat.S_IROTH)]
    return next((path for path, bit in bits if not path.stat().st_mode & bit), None)


def output_of(words: Sequence[str]) -> str:
    """What a program writes. Raises InputError if it does not run."""
    try:
        return subprocess.run(
            words, capture_output=True, text=True, errors="replace", check=True, timeout=_LIMIT_S
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"{words[0]}: {error}, expected it to run") from None


def value_of(name: str) -> str:
    """What HTCondor goes by on this machine; empty if it has none, or cannot be asked."""
    program = shutil.which("condor_config_val")
    try:
        return output_of([program, name]).strip() if program else ""
    except InputError:
        return ""


def daemon_user() -> str:
    """Who HTCondor's own daemons run as, where root starts them."""
    if os.geteuid() != 0:
        return ""
    try:
        return pwd.getpwnam("condor").pw_name
    except KeyError:
        return ""


def hook_config(args: argparse.Namespace, ahead: bool = False) -> HookConfig:
    """The hooks' configuration. Raises InputError for what is no URL."""
    from adon.config.adon_yml import load_config
    from network_provisioner.client.broker import BrokerClient
    from network_provisioner.client.hookconfig import HookConfig

    broker, archive = args.broker, None
    if args.config is not None:
        loaded = load_config(args.config)
        broker, archive = broker or loaded.broker_url, loaded.broker.archive
    broker = broker or DEFAULT_BROKER
    BrokerClient(broker)
    token = args.token_file and str(args.token_file)
    if token is not None and not token.startswith("~"):
        token = str(Path(token).absolute())
    return HookConfig(
        broker=broker, archive=archive, token_file=token, watch=WATCH_FOLDER, ahead=ahead
    )


def site_hooks(args: argparse.Namespace, **more: Any) -> bytes:
    """The same for programs that HTCondor starts at a site, as a file; ``more`` are settings."""
    from network_provisioner.client.hookconfig import HookConfig

    config = replace(hook_config(args), archive=None, watch=None, site=args.site, **more)
    usual = asdict(HookConfig(""))
    settings = {k: v for k, v in asdict(config).items() if v != usual[k]}
    return (json.dumps(settings, indent=1) + "\n").encode()


def notes(args: argparse.Namespace) -> Iterator[str]:
    """Whether the broker answers now; it need not."""
    from network_provisioner.client.hookclient import client_of

    try:
        client_of(hook_config(args)).health()
    except AdonError as error:
        yield f"{error}; until that changes transfers go without a path"


def confirm_changes(args: argparse.Namespace, needed: Sequence[FileEdit]) -> bool:
    """Show the diff, and ask unless --yes is given. Raises InputError without a terminal."""
    print("".join(change.diff() for change in needed), end="")
    if args.dry_run:
        print("dry run: nothing was changed")
        return False
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise InputError("standard input is not a terminal, expected --yes or --dry-run")
    print("Change these files? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("nothing was changed")
    return False


def install(
    args: argparse.Namespace,
    place: InstallTarget,
    edits: Sequence[FileEdit],
    parts: Sequence[InstallPart],
    verified: Callable[[], Verification] | None,
) -> int | None:
    """Show the changes, ask, carry out, verify (None: no planner to ask), and take back what is not
    accepted. None if all is in place now, else the exit code. Raises InputError."""
    from pegasus_hooks.install.edits import carry_out, check_writable, reversed_edits

    needed = [change for change in edits if change.needed]
    if not needed:
        where = " and ".join(str(file) for file in place.files)
        print(f"nothing to do: ADON is installed as asked, in {where}")
        return 0
    check_writable(needed)
    if not confirm_changes(args, needed):
        return 0 if args.dry_run else 1
    carry_out(edits, place.own)
    for part in parts:
        print(f"installed: {part.what}")
    if verified is None:
        print("not verified: no pegasus-plan on PATH")
        return None
    try:
        print("verifying: pegasus-plan plans a workflow of two jobs", flush=True)
        good = _say(verified())
    except BaseException:
        carry_out(reversed_edits(edits), place.own)
        raise
    if good:
        return None
    carry_out(reversed_edits(edits), place.own)
    print("undone: all files are as they were")
    return 1


def _say(verdict: Verification) -> bool:
    if verdict.good is None:
        print(f"not verified: {verdict.said}")
        return True
    print(f"{'verified' if verdict.good else 'not accepted'}: {verdict.said}")
    return verdict.good


def undo(args: argparse.Namespace, places: Sequence[InstallTarget], keep: Collection[str]) -> int:
    """Take out what is at the places, the parts ``keep`` excepted. Raises InputError."""
    from pegasus_hooks.install.edits import carry_out, check_writable
    from pegasus_hooks.install.installing import changes_to_undo, remaining_files

    place = places[0]
    in_use = still_needed(place, keep)
    edits = changes_to_undo(place, places[1:], keep, in_use)
    needed = [change for change in edits if change.needed]
    for path in remaining_files(edits):
        print(f"left: {path}: found a file that is not ADON's")
    if not needed:
        files = dict.fromkeys(file for each in places for file in each.files)
        print(f"nothing to do: no ADON in {', '.join(str(file) for file in files)}")
        return 0
    check_writable(needed)
    if not confirm_changes(args, needed):
        return 0 if args.dry_run else 1
    carry_out(edits, place.own)
    print("taken out: " + ", ".join(str(change.path) for change in needed))
    return 0


def still_needed(place: InstallTarget, keep: Collection[str]) -> Collection[str]:
    """The parts, ``keep`` excepted, whose programs workflows need that run now; says so."""
    from pegasus_hooks.install.installing import needing
    from pegasus_hooks.install.parts import NAMES

    if set(NAMES) <= set(keep):
        return ()
    needed = {name: busy for name, busy in needing(place).items() if name not in keep}
    for name, busy in needed.items():
        where = place.jars if name == "selector" else place.programs
        print(
            f"workflows still run, or are queued, that need the {name} in {where}, which stays "
            f"until they have ended ({len(busy)}, one in {busy[0]}); then --undo again"
        )
    return needed.keys()
