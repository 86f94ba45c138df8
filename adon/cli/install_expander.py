"""``adon install condor --expander``: condor_master runs what makes the pool larger and smaller."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.install_ask import daemon_user, output_of, refuse_foreign, this_python, value_of
from network_provisioner.base.errors import InputError

if TYPE_CHECKING:
    from adon.config.sections import Config, ExpansionConfig
    from pegasus_hooks.install.edits import FileEdit

NAME, DAEMON = "99-adon-expander", "ADON_EXPANDER"
MARK = "# Written by 'adon install condor --expander', removed by its '--undo'."
LOG = "$(LOG)/AdonExpanderLog"
# Where adon.yml is bad the daemon ends at once: it is started again after 2, 3, 5, 9, … s, and at
# least every this many.
AGAIN_S = 60


def to_install(args: argparse.Namespace, folder: Path) -> list[FileEdit]:
    """The file that is wanted. Raises InputError."""
    from pegasus_hooks.install.edits import FileEdit, read

    path = folder / NAME
    before = read(path)
    refuse_foreign(path, before is not None and not _is_ours(before))
    if args.config is None:
        raise InputError("found no --config, expected adon.yml with section 'expansion'")
    user = user_of(_loaded(args.config)[0], daemon_user())
    settings = text(str(this_python()), args.config.absolute(), user)
    return [FileEdit(path, before, settings.encode())]


def to_undo(folder: Path) -> list[FileEdit]:
    """The file that is to go. Raises InputError."""
    from pegasus_hooks.install.edits import FileEdit, read

    path = folder / NAME
    before = read(path)
    refuse_foreign(path, before is not None and not _is_ours(before))
    return [] if before is None else [FileEdit(path, before, None)]


def verification_lines(path: Path) -> Iterator[str]:
    """What condor_master will run, as far as can be seen from here."""
    config, section = _loaded(path)
    version = output_of([str(this_python()), "-I", "-m", "adon", "--version"]).strip()
    condor = daemon_user()
    user = user_of(config, condor)
    yield (
        f"verified: condor_master will run {version}{f' as {user}' if user else ''}, by {path} "
        f"(driver {section.driver})"
    )
    listed = value_of("DAEMON_LIST")
    if listed and DAEMON not in listed:
        yield f"note: DAEMON_LIST is set again elsewhere: {listed}, expected {DAEMON} in it"
    if user not in ("", condor):
        log = LOG.replace("$(LOG)", "$(condor_config_val LOG)")
        yield f'note: {user} needs a log: install -o {user} -m 644 /dev/null "{log}"'


def user_of(config: Config, condor: str) -> str:
    """Who it is to run as where HTCondor's own daemons run as ``condor``: whose the archive is, in
    which it reads and records; "" for who starts condor_master."""
    try:
        owner = Path(config.broker.archive).owner() if condor else ""
    except (OSError, KeyError):  # a database, or not there yet
        return condor
    return "" if owner == "root" else owner


def _loaded(path: Path) -> tuple[Config, ExpansionConfig]:
    """Raises InputError if it does not say how the pool can grow."""
    from adon.config.adon_yml import load_config
    from adon.config.expansion import section_of

    config = load_config(path)
    return config, section_of(config, path)


def text(python: str, config: Path, user: str = "") -> str:
    """A file for HTCondor's ``config.d``. Raises InputError for a path that HTCondor would change.

    condor_master gives its daemons no standard error: by the shell in front, which makes room for
    Python at once, it is kept in the log, for what Python says before the daemon writes there.
    """
    from condor_plugins.transfers.setup import quoted

    run = [python, "-I", "-m", "adon", "pool", "run", "--config", str(config)]
    shell = ["'-c'", """'exec ""$@"" 2>>""$0""'""", f"'{LOG}'"]
    lines = [
        MARK,
        f"DAEMON_LIST = $(DAEMON_LIST) {DAEMON}",
        f"{DAEMON} = /bin/sh",
        f'{DAEMON}_ARGS = "{" ".join(shell)} {quoted(run, ["--log-file", LOG])[1:]}',
        f"MASTER_{DAEMON}_BACKOFF_CONSTANT = 1",
        f"MASTER_{DAEMON}_BACKOFF_CEILING = {AGAIN_S}",
        *([f"{DAEMON}_USERID = {user}"] if user else []),
    ]
    return "".join(f"{line}\n" for line in lines)


def _is_ours(content: bytes) -> bool:
    return content.decode("utf-8", "replace").partition("\n")[0] == MARK
