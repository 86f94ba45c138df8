"""Have Pegasus ask ADON where jobs go, and take that back."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adon.commands.parsing import Nouns, add_command, add_noun

if TYPE_CHECKING:
    from pegasus_hooks.install.changes import Change
    from pegasus_hooks.install.home import Home, Place
    from pegasus_hooks.install.parts import Part

_PEGASUS = """Install ADON's site selection into a Pegasus, or take it out again.

Shows what will change and asks first. For all users of the installation: a jar beside Pegasus's own
and a block of settings in its etc/pegasus.properties; pegasus-plan stays as it is. Then plans a
workflow of two jobs to see that ADON answers, and takes all back where it does not.
"""
_PEGASUS_MORE = """
Examples:
  adon install pegasus --home /opt/pegasus --dry-run     what would change
  adon install pegasus --home /opt/pegasus --config /etc/adon.yml
  adon install pegasus --user                            for yourself, in your own files
  adon install pegasus --home /opt/pegasus --callout     where no jar may be added: 5 s per job
  adon install pegasus --home /opt/pegasus --undo        as it was before

Exit codes: 0 done, or nothing to do; 1 you said no, or ADON did not answer: all is as it was;
2 it cannot be installed there, and nothing was changed.
"""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon install pegasus``."""
    verbs = add_noun(nouns, "install", __doc__)
    parser = add_command(verbs, "pegasus", _PEGASUS, _run, _PEGASUS_MORE)
    parser.add_argument(
        "--home", type=Path, metavar="DIR",
        help="the Pegasus installation (default: that of the pegasus-plan on PATH)",
    )  # fmt: skip
    parser.add_argument(
        "--user", action="store_true",
        help="for yourself only: your shell's start file, or ~/.pegasusrc for the callout",
    )  # fmt: skip
    parser.add_argument(
        "--callout", action="store_true",
        help="the documented callout instead of the plug-in; the planner sleeps 5 s per job",
    )  # fmt: skip
    parser.add_argument(
        "--config", type=Path, metavar="FILE",
        help="adon.yml with archive and network (default: the catalogs alone)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=_seconds, metavar="S",
        help="seconds that ADON may take for a workflow (default: 30), then a built-in rule maps",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and end")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--undo", action="store_true", help="take out what was installed")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected seconds above 0")
    return value


def _run(args: argparse.Namespace) -> int:
    from pegasus_hooks.install.changes import locked

    home = _home(args)
    places = _places(args, home)
    with locked(places[0].lock):
        if args.undo:
            return _undo(args, places)
        return _install(args, home, places)


def _home(args: argparse.Namespace) -> Home | None:
    """The Pegasus; what is one user's can be changed without."""
    from network_provisioner.errors import InputError
    from pegasus_hooks.install.home import home_at, home_on_path

    if args.home is not None:
        return home_at(args.home)
    try:
        return home_on_path()
    except InputError:
        if args.user:
            return None
        raise


def _places(args: argparse.Namespace, home: Home | None) -> list[Place]:
    from pegasus_hooks.install.home import place_for_all, place_for_user

    if not args.user:
        assert home is not None
        return [place_for_all(home)]
    own, shell = Path.home(), os.environ.get("SHELL", "")
    asked = place_for_user(own, shell, args.callout)
    # Whichever way it was installed before, and whatever the shell was then.
    every = [place_for_user(own, "", True)]
    every += [place_for_user(own, other, False) for other in ("bash", "zsh", "sh")]
    return [asked, *(place for place in every if place.settings != asked.settings)]


def _part(args: argparse.Namespace) -> Part:
    from adon.config import load_config
    from adon.planner_jar import planner_jar
    from network_provisioner.errors import InputError
    from pegasus_hooks.install.parts import callout_part, plugin_part

    if args.config is not None:
        load_config(args.config)
    # Not resolved: what a virtual environment's python links to does not know its packages.
    python = str(Path(sys.executable).absolute())
    if args.callout:
        return callout_part(python, args.config, args.timeout)
    jar = planner_jar(progress=print)
    try:
        content = jar.read_bytes()
    except OSError as error:
        raise InputError(f"{jar}: {error.strerror}, expected the planner plug-in") from None
    return plugin_part(content, python, args.config, args.timeout)


def _install(args: argparse.Namespace, home: Home | None, places: Sequence[Place]) -> int:
    from pegasus_hooks.install.changes import check_writable
    from pegasus_hooks.install.installing import carry_out, changes_to_install, undoing

    part, place = _part(args), places[0]
    wanted = changes_to_install(place, [part], places[1:])
    needed = [change for change in wanted if change.needed]
    if not needed:
        print(f"nothing to do: ADON is installed as asked, in {place.settings}")
        return 0
    check_writable(needed)
    if not _agreed(args, needed):
        return 0 if args.dry_run else 1
    carry_out(place, wanted)
    print(f"installed: {part.what}")
    try:
        good = _verified(args, home, place, part)
    except BaseException:
        carry_out(place, undoing(wanted))
        raise
    if not good:
        carry_out(place, undoing(wanted))
        print("taken back: all files are as they were")
        return 1
    _warm()
    if not args.user:
        for line in _notes(part):
            print(f"note: {line}")
    if place.shell:
        print(f"from the next shell on; in this one: . {place.settings}")
    return 0


def _warm() -> None:
    """Compile what large workflows need, so that the first of them does not wait for it.

    In a process of its own: what it prints is its own affair, and it is no reason to fail.
    """
    import subprocess

    print("preparing for large workflows (once, up to a minute)", flush=True)
    command = [sys.executable, "-I", "-m", "site_selector.warm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        print(f"note: not compiled beforehand: {said[-1] if said else done.returncode}")


def _notes(part: Part) -> Iterator[str]:
    """What keeps an installation for all from being one."""
    from pegasus_hooks.install.installing import own_choice

    mine = own_choice(Path.home() / ".pegasusrc", [part])
    if mine is not None:
        yield f"{mine}, which wins for you"
    python = Path(sys.executable).absolute()
    shut = next((d for d in (python, *python.parents) if not d.stat().st_mode & stat.S_IXOTH), None)
    if shut is not None:
        yield f"other users cannot run {python}: {shut} is closed to them"


def _undo(args: argparse.Namespace, places: Sequence[Place]) -> int:
    from pegasus_hooks.install.changes import check_writable
    from pegasus_hooks.install.installing import carry_out, changes_to_undo

    wanted = changes_to_undo(places[0], places[1:])
    needed = [change for change in wanted if change.needed]
    if not needed:
        print(f"nothing to do: no ADON in {', '.join(str(place.settings) for place in places)}")
        return 0
    check_writable(needed)
    if not _agreed(args, needed):
        return 0 if args.dry_run else 1
    carry_out(places[0], wanted)
    print("taken out: " + ", ".join(str(change.path) for change in needed))
    return 0


def _agreed(args: argparse.Namespace, needed: Sequence[Change]) -> bool:
    """Show the diff, and ask where nobody said yes. Raises InputError where nobody can be asked."""
    from network_provisioner.errors import InputError

    print("".join(change.diff() for change in needed), end="")
    if args.dry_run:
        print("dry run: nothing was changed")
        return False
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise InputError("standard input is no terminal to ask on, expected --yes or --dry-run")
    print("Change these files? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("nothing was changed")
    return False


def _verified(args: argparse.Namespace, home: Home | None, place: Place, part: Part) -> bool:
    """Plan two jobs, say what came of it, and tell whether the installation may stay."""
    from pegasus_hooks.install.installing import environment
    from pegasus_hooks.install.verify import verify

    if home is None:
        print("not verified: no pegasus-plan on PATH")
        return True
    print("verifying: pegasus-plan plans a workflow of two jobs", flush=True)
    environ = dict(os.environ)
    if place.shell:
        environ |= environment(place, [part])
    verdict = verify(home, part, environ, own_home=args.user)
    if verdict.good is None:
        print(f"not verified: {verdict.said}")
        return True
    print(f"{'verified' if verdict.good else 'not accepted'}: {verdict.said}")
    return verdict.good
