"""Keep an archive of measurements small, or somewhere else."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.parsing import Nouns, add_command

if TYPE_CHECKING:
    from monitors.archive.archive import Archive

_RETAIN = """Roll up and take away what is older than adon.yml says (monitoring.retention), at once.

The broker does it every hour by itself; this is for archives without one.
"""
_RETAIN_MORE = """
Examples:
  adon archive retain --config adon.yml --dry-run
"""
_COPY = """Copy everything from one archive to another, which must be empty.

Places are files or postgresql:// URLs. Stop who writes first: what they record meanwhile might not
be copied. The first place stays as it is.
"""
_COPY_MORE = """
Examples:
  adon archive copy adon-archive.sqlite postgresql://adon@db.example.org/adon
"""


def add_keep(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon archive retain|copy``."""
    retain = add_command(verbs, "retain", _RETAIN, _retain, _RETAIN_MORE)
    retain.add_argument("--config", type=Path, required=True, metavar="FILE", help="adon.yml")
    retain.add_argument("--dry-run", action="store_true", help="only say how many would go")
    copy = add_command(verbs, "copy", _COPY, _copy, _COPY_MORE)
    copy.add_argument("source", metavar="FROM", help="a file or a postgresql:// URL")
    copy.add_argument("target", metavar="TO", help="the same, empty; made where it is not there")


def opened(place: str) -> Archive:
    """An archive that is there, for reading. Raises InputError, ArchiveError."""
    from monitors.archive.archive import Archive
    from network_provisioner.base.errors import InputError
    from network_provisioner.stores.database_url import check_state, is_database_url

    check_state(place)
    if not is_database_url(place) and not Path(place).exists():
        raise InputError(f"{place}: found no such file, expected an archive of measurements")
    return Archive(place, read_only=True)


def _retain(args: argparse.Namespace) -> int:
    from adon.config.adon_yml import load_config
    from monitors.archive.archive import Archive
    from monitors.archive.retention.horizons import Retention, retention_from_dict
    from monitors.archive.retention.service import due, retain
    from network_provisioner.stores.database_url import place

    config = load_config(args.config)
    settings = config.monitoring
    retention = retention_from_dict(settings.retention if settings is not None else {})
    where = place(config.broker.archive, args.config.parent)
    opened(str(where)).close()
    if retention == Retention():
        print(f"{args.config} has no monitoring.retention: everything is kept")
        return 0
    with Archive(where) as archive:
        if args.dry_run:
            counts = due(archive, retention, time.time())
            for metric, count in counts.items():
                print(f"{metric}: {count} measurements")
            print(f"in all {sum(counts.values())} would go; nothing was done")
            return 0
        done = retain(archive, retention, time.time())
    print(f"took {done.removed} measurements away, made {done.made} roll-ups")
    return 0


def _copy(args: argparse.Namespace) -> int:
    from monitors.archive.archive import Archive
    from monitors.archive.contents import copy_archive
    from network_provisioner.stores.database_url import check_state

    check_state(args.target)
    with opened(args.source) as source, Archive(args.target) as target:
        count = copy_archive(source, target)
    print(f"copied {count} measurements")
    return 0
