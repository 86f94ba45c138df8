"""HTCondor's settings that put the hook and the watcher into an access point, as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from condor_plugins.jobs.jobad import EVENT_ATTRIBUTES, MACHINE_ATTRIBUTES
from condor_plugins.jobs.sites import site_word
from network_provisioner.base.errors import InputError

KEYWORD = "ADON"
DAEMON = "ADON_TRANSFERS"
SETTING = "SHADOW_DEFAULT_JOB_HOOK_KEYWORD"
FORCED = "SHADOW_JOB_HOOK_KEYWORD"
MARK = "# Written by 'adon install condor', removed by its '--undo'."
_HELD_BY_HOOK = 48  # HoldReasonCode HookShadowPrepareJobFailure
_PROGRAM = Path(__file__).resolve().with_name("shadow_prepare.py")
_SET = re.compile(rf"^[ \t]*({SETTING}|{FORCED})[ \t]*=[ \t]*(\S.*?)[ \t]*$", re.I | re.M)


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """``python`` runs both; ``hooks`` is their configuration; ``daemon_user`` is who the watcher
    runs as where condor_master is root's, empty elsewhere; ``token_file`` is the watcher's own;
    ``site`` is that of the access point."""

    python: str
    hooks: Path
    daemon_user: str = ""
    token_file: str = ""
    site: str = ""


def text(settings: TransferSettings) -> str:
    """A file for HTCondor's ``config.d``. Raises InputError for a path that HTCondor would change.

    The shell in front of the hook sees to it that a hook which cannot even be started does no harm:
    HTCondor would hold the job, or start it over for ever.
    """
    hook = [settings.python, "-I", "-S", str(_PROGRAM), "--config", str(settings.hooks)]
    watch = [settings.python, "-I", "-m", "condor_plugins.transfers.watch"]
    watch += ["--config", str(settings.hooks)]
    watch += ["--token-file", settings.token_file] if settings.token_file else []
    arguments = ["-c", '"$@"; exit 0', "adon", *map(_plain, hook)]
    own = ["--event-log", "$(EVENT_LOG)", "--log", "$(LOG)/AdonTransfersLog"]
    user = [f"{DAEMON}_USERID = {settings.daemon_user}"] if settings.daemon_user else []
    lines = [
        MARK,
        f"# What both programs go by: {settings.hooks}",
        "",
        "# Requests a path before a job's input is sent. A job's own HookKeyword takes precedence.",
        f"{SETTING} = {KEYWORD}",
        f"{KEYWORD}_HOOK_SHADOW_PREPARE_JOB = /bin/sh",
        f"{KEYWORD}_HOOK_SHADOW_PREPARE_JOB_ARGS = {_raw(arguments)}",
        "# HTCondor holds a job whose hook was killed: release it.",
        f"SYSTEM_PERIODIC_RELEASE_NAMES = $(SYSTEM_PERIODIC_RELEASE_NAMES) {KEYWORD}",
        f"SYSTEM_PERIODIC_RELEASE_{KEYWORD} = "
        f"HoldReasonCode =?= {_HELD_BY_HOOK} && HoldReasonSubCode < 0",
        "",
        "# The site of the job's slot.",
        "SYSTEM_JOB_MACHINE_ATTRS = $(SYSTEM_JOB_MACHINE_ATTRS) " + " ".join(MACHINE_ATTRIBUTES),
        "",
        "# What the access point sends to a slot, for AdonDataSeconds of the slot.",
        f"JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) {KEYWORD}",
        f"JOB_TRANSFORM_{KEYWORD} @=end",
        f"  DEFAULT AdonBytesAt_{site_word(settings.site)} 1048576 * (TransferInputSizeMB ?: 0)",
        "@end",
        "",
        "# Events of all jobs, for the watcher, which releases paths.",
        "if ! defined EVENT_LOG",
        "  EVENT_LOG = $(LOG)/EventLog",
        "endif",
        "EVENT_LOG_JOB_AD_INFORMATION_ATTRS = $(EVENT_LOG_JOB_AD_INFORMATION_ATTRS) "
        + " ".join(EVENT_ATTRIBUTES),
        f"DAEMON_LIST = $(DAEMON_LIST) {DAEMON}",
        "# By env, because condor_master hides from Python the path it was called by.",
        f"{DAEMON} = /usr/bin/env",
        f"{DAEMON}_ARGS = {quoted(watch, own)}",
        f"MASTER_{DAEMON}_BACKOFF_CONSTANT = 1",
        f"MASTER_{DAEMON}_BACKOFF_CEILING = 5",
        *user,
    ]
    return "".join(f"{line}\n" for line in lines)


def hooks_of(content: bytes) -> Path | None:
    """The configuration that a file of ours names; None for a file that is not ours."""
    lines = content.decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != MARK:
        return None
    named = [line.partition(": ")[2] for line in lines if line.startswith("# What both programs")]
    return Path(named[0]) if named else None


def other_hooks(files: Iterable[tuple[str, str]]) -> str:
    """Where somebody else's hooks are the ones that HTCondor runs, as text, empty if nowhere;
    ``files`` are names and contents."""
    for name, content in files:
        for match in _SET.finditer(content):
            if match[2] != KEYWORD:
                number = content.count("\n", 0, match.start()) + 1
                return f"{name}:{number}: found {match[1]} = {match[2]}"
    return ""


def _plain(word: str) -> str:
    """A word that HTCondor's configuration keeps as it is."""
    if "$" in word or '"' in word or not word.isprintable():
        raise InputError(f'path {word!r}: expected none of $, " and control characters in it')
    return word


def _raw(words: Sequence[str]) -> str:
    """Arguments in HTCondor's second syntax."""
    return " ".join("'" + word.replace("'", "''") + "'" for word in words)


def quoted(words: Sequence[str], ours: Sequence[str] = ()) -> str:
    """The same between double quotes, as the arguments of daemons and of startds' programs have to
    be. In ``ours`` HTCondor puts its own values. Raises InputError for a word that it would change.
    """
    return f'"{_raw([*map(_plain, words), *ours])}"'
