"""The watcher as a daemon of condor_master:

    python -I -m condor_plugins.transfers.watch --config FILE --event-log FILE [--log FILE]

It runs until SIGTERM, and ends with its master. What it leaves behind it finds when it starts
again; leases end what no watcher finds.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from condor_plugins.transfers.access_point import AccessPoint
from condor_plugins.transfers.run_state import ADS, RunEvent, run_events
from condor_plugins.transfers.schedd import LocalSchedd
from monitors.watcher import watcher
from monitors.watcher.watcher import Watcher
from monitors.workflows.logs.events import EventTail
from network_provisioner.base.daemon_log import log_to
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.client import hookconfig
from network_provisioner.client.hookclient import client_of, expand_by_user
from network_provisioner.client.hookconfig import HookConfig

log = logging.getLogger("condor_plugins.transfers.watch")


class EventLog:
    """HTCondor's event log, through its rotations."""

    def __init__(self, path: Path) -> None:
        self._path, self._events = path, EventTail(path, ADS)

    def files(self) -> list[Path]:
        """See access_point.Events."""
        return [self._path]

    def read(self) -> Iterator[RunEvent]:
        """What is new in it. Raises InputError if it cannot be read."""
        return run_events(self._events.read())


class _WithParent(threading.Event):
    """Set, too, when the process that started this has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._parent = os.getppid()

    def is_set(self) -> bool:
        """See threading.Event."""
        return super().is_set() or os.getppid() != self._parent


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's text. Exit code 2 with one line where it cannot run as asked."""
    options = _parser().parse_args(argv)
    try:
        config = _config(options)
        broker = client_of(config, os.environ, options.token_file, expand_by_user)
        log_to(options.log)
    except (AdonError, OSError) as error:
        print(f"adon transfers watch: {error}", file=sys.stderr)
        return 2
    log.info("watching %s", options.event_log)
    access_point = AccessPoint(config, LocalSchedd(), EventLog(options.event_log))
    Watcher(access_point, lambda _config: broker).run(watcher.stop_event(_WithParent()))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m condor_plugins.transfers.watch")
    parser.add_argument("--config", type=Path, required=True, help="the hooks' configuration")
    parser.add_argument("--event-log", type=Path, required=True, help="HTCondor's EVENT_LOG")
    parser.add_argument("--token-file", help="instead of the configuration's")
    parser.add_argument("--log", type=Path, help="where to write a log (default: standard error)")
    return parser


def _config(options: argparse.Namespace) -> HookConfig:
    config = hookconfig.load(options.config)
    if not config.site:
        raise InputError(f"{options.config}: found no key 'site', expected the access point's site")
    return config


if __name__ == "__main__":
    sys.exit(main())
