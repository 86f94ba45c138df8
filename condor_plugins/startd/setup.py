"""HTCondor's settings that have an execute node tell its site and its metrics, as text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from condor_plugins.transfers.setup import quoted
from network_provisioner.base.errors import InputError

MARK = "# Written by 'adon install condor --execute', removed by its '--undo'."
HOST, PATHS = "ADON_HOST", "ADON_PATHS"
_NAMED = "# What asks the broker goes by: "
_MOVES = "# What moves files of irods:// is: "
PLUGINS = "FILETRANSFER_PLUGINS"
METRICS = Path(__file__).resolve().with_name("metrics.py")


@dataclass(frozen=True, slots=True)
class StartdMetrics:
    """``python`` runs the programs. ``site`` is put into the slot ads, "" if something else does
    that; ``hooks`` is the configuration that names the broker, None if none is asked; the broker
    is asked ``spread_s`` too late at most. ``every_s``: between two readings of the host.
    ``plugin`` is the program that moves files of ``irods://``, None for none."""

    python: str
    site: str = ""
    interface: str = "default"
    hooks: Path | None = None
    every_s: int = 60
    paths_every_s: int = 60
    spread_s: float = 10.0
    plugin: Path | None = None


def text(settings: StartdMetrics) -> str:
    """A file for HTCondor's ``config.d``. Raises InputError for a path or site that HTCondor would
    change."""
    # -I -S: no site-packages to read, it uses the standard library only.
    metrics = [settings.python, "-I", "-S", str(METRICS), settings.interface]
    lines = [MARK]
    if settings.site:
        if '"' in settings.site or "$" in settings.site or not settings.site.isprintable():
            raise InputError(f"site {settings.site!r}: expected a name without quotes and $")
        lines += [f'AdonSite = "{settings.site}"', "STARTD_ATTRS = $(STARTD_ATTRS) AdonSite"]
    lines += _job(HOST, metrics, settings.every_s, "$(LOG)/adon-metrics.json", "$(EXECUTE)")
    if settings.hooks is not None:
        paths = [settings.python, "-I", "-m", "condor_plugins.startd.paths"]
        paths += ["--config", str(settings.hooks), "--spread", f"{settings.spread_s:g}"]
        lines += [f"{_NAMED}{settings.hooks}", *_job(PATHS, paths, settings.paths_every_s)]
    if settings.plugin is not None:
        if set(str(settings.plugin)) & set(', "$'):
            raise InputError(f'path {str(settings.plugin)!r}: expected no space and none of , " $')
        plugins = f"{PLUGINS} = $({PLUGINS}), {settings.plugin}"
        lines += [f"{_MOVES}{settings.plugin}", plugins]
    return "".join(f"{line}\n" for line in lines)


def is_ours(content: bytes) -> bool:
    """Whether a file is one of these."""
    return content.decode("utf-8", "replace").partition("\n")[0] == MARK


def hooks_of(content: bytes) -> Path | None:
    """The configuration that such a file names; None if it names none."""
    return _named(content, _NAMED)


def plugin_of(content: bytes) -> Path | None:
    """The transfer plug-in that such a file names; None if it names none."""
    return _named(content, _MOVES)


def _named(content: bytes, before: str) -> Path | None:
    lines = content.decode("utf-8", "replace").splitlines()
    named = [line.removeprefix(before) for line in lines if line.startswith(before)]
    return Path(named[0]) if named and is_ours(content) else None


def _job(name: str, words: list[str], every_s: int, *ours: str) -> list[str]:
    """``ours`` are words in which HTCondor is to put its own folders."""
    return [
        f"STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) {name}",
        # By env, for the startd keeps from Python by which path it was called.
        f"STARTD_CRON_{name}_EXECUTABLE = /usr/bin/env",
        f"STARTD_CRON_{name}_ARGS = {quoted(words, ours)}",
        f"STARTD_CRON_{name}_MODE = Periodic",
        f"STARTD_CRON_{name}_PERIOD = {every_s}s",
        f"STARTD_CRON_{name}_KILL = True",
    ]
