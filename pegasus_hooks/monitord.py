"""The plug-in ``adon`` of Pegasus 6's monitord: it follows the workflow as long as monitord runs.

monitord delivers events at best effort: it drops some when its queue is full, delivers none after
it dies, and delivers all again when it starts again. To the plug-in, an event therefore only says
that there is something new to read. It records what the files say, with the same ids as any other
follower (:mod:`monitors.workflows.followed`): nothing is lost or recorded twice, and another
follower completes what this one did not read.

monitord needs the methods and the filter, not its base class, which only Pegasus 6 has.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monitors.archive.archive import Archive
from monitors.base.background import Background
from monitors.workflows.follower import Follower
from monitors.workflows.sink import BrokerSink
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.client.credentials import from_environment, read_token

PREFIX = "pegasus.monitord.plugins.adon."
_STOP_S = 8.0  # monitord waits for 10 s

_log = logging.getLogger(__name__)


class AdonPlugin:
    """See ``Pegasus.monitoring.plugin.MonitordEventPlugin``."""

    event_filter = ("stampede.job_inst.", "stampede.xwf.")

    def __init__(self) -> None:
        self._thread = Background("adon-follower", self._run)

    def start(self, props: Any = None, **_context: Any) -> None:
        """Begin to follow the workflow in the working directory, which monitord sets. ``props`` are
        Pegasus's properties. Raises AdonError: monitord logs it and continues without the
        plug-in."""
        self._sink = _sink(props.propertyset(PREFIX, True))
        self._follower = Follower(Path.cwd(), self._sink)
        self._thread.start()

    def handle_event(self, _event: str, values: Mapping[str, Any]) -> None:
        """Have the event's workflow read now: the kernel does not report what other machines write
        to a network file system."""
        self._follower.observe(values["xwf__id"])

    def tick(self) -> None:
        """Nothing: the follower has its own clock."""

    def stop(self) -> None:
        """Record what is left, and end."""
        self._thread.stop(_STOP_S)

    def _run(self) -> None:
        try:
            self._follower.run(self._thread.stopping)
        except AdonError as error:
            _log.warning("ADON stops following the workflow: %s", error)
        finally:
            if isinstance(self._sink, Archive):
                self._sink.close()


def _sink(settings: Mapping[str, str]) -> Archive | BrokerSink:
    """Where the measurements go. Raises AdonError."""
    archive, broker = settings.get("archive"), settings.get("broker")
    if archive and not broker:
        return Archive(archive)
    if not broker:
        raise InputError(f"{PREFIX}broker: found no URL, expected the broker's, or {PREFIX}archive")
    if archive:
        raise InputError(f"{PREFIX}archive: found a file and a broker, expected one of them")
    token, tls = from_environment(os.environ)
    if file := settings.get("token_file"):
        token = read_token(Path(file))
    return BrokerSink(broker, token, tls)
