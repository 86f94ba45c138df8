"""The watcher as a daemon of condor_master:

    python -I -m condor_plugins.transfers.watch --config FILE --event-log FILE [--log FILE]

It runs until SIGTERM, and ends with its master. What it leaves behind it finds when it starts
again; leases end what nobody finds.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from condor_plugins.transfers.events import ADS, RunEvent, run_events
from condor_plugins.transfers.schedd import LocalSchedd
from condor_plugins.transfers.watcher import Watcher
from monitors.watcher import loop
from monitors.workflows.logs.events import EventTail
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.client import hookconfig
from network_provisioner.client.hookclient import client_of, expand_by_user


class EventLog:
    """HTCondor's event log, through its rotations."""

    def __init__(self, path: Path) -> None:
        self._events = EventTail(path, ADS)

    def read(self) -> Iterator[RunEvent]:
        """What is new in it. Raises InputError where it cannot be read."""
        return run_events(self._events.read())


def main(words: Sequence[str] | None = None) -> int:
    """See the module's text. Exit code 2 with one line where it cannot run as asked."""
    options = _parser().parse_args(words)
    try:
        watcher = _watcher(options)
    except (AdonError, OSError) as error:
        print(f"adon transfers watch: {error}", file=sys.stderr)
        return 2
    stop, master = loop.stopped(), os.getppid()

    def step() -> bool:
        if os.getppid() != master:
            stop.set()
        try:
            return watcher.step()
        except Exception:  # whatever it stumbled over, everybody else's paths go on being followed
            logging.exception("a look failed")
            return True

    logging.info("watching %s", options.event_log)
    loop.run(step, lambda: {options.event_log}, stop)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m condor_plugins.transfers.watch")
    parser.add_argument("--config", type=Path, required=True, help="the hooks' configuration")
    parser.add_argument("--event-log", type=Path, required=True, help="HTCondor's EVENT_LOG")
    parser.add_argument("--token-file", help="instead of the configuration's")
    parser.add_argument("--log", type=Path, help="where to write a log (default: standard error)")
    return parser


def _watcher(options: argparse.Namespace) -> Watcher:
    config = hookconfig.load(options.config)
    if not config.site:
        raise InputError(f"{options.config}: found no key 'site', expected the access point's site")
    broker = client_of(config, os.environ, options.token_file, expand_by_user)
    loop.log_to(options.log)
    return Watcher(config, LocalSchedd(), EventLog(options.event_log), lambda _config: broker)


if __name__ == "__main__":
    sys.exit(main())
