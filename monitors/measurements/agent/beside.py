"""What an agent reports beside its tasks."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import psutil

from monitors.measurements.agent.broker_link import BrokerLink
from monitors.measurements.agent.settings import AgentSettings
from network_provisioner.base.errors import AdonError, printable

_log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0

Post = Callable[[Mapping[str, Any]], None]
"""Sends a report to the broker. Raises AdonError."""


class Reporter(Protocol):
    """Looks each ``every_s`` seconds, and reports what there is to say."""

    every_s: float

    def look(self, post: Post) -> None:
        """Raises AdonError, OSError, ValueError, psutil.Error, and goes on the next time."""


@contextmanager
def reporting(settings: AgentSettings, what: str, reporter: Reporter) -> Iterator[None]:
    """Have ``what`` reported meanwhile, in a thread and over a connection of its own. What goes
    wrong is said once."""
    over = threading.Event()
    link = BrokerLink(settings)

    def post(body: Mapping[str, Any]) -> None:
        link.ask(what, _TIMEOUT_S, body=json.dumps(body).encode())

    def run() -> None:
        trouble = ""
        while not over.wait(reporter.every_s):
            try:
                reporter.look(post)
                trouble = ""
            except (AdonError, OSError, ValueError, psutil.Error) as error:
                if str(error) != trouble and not over.is_set():
                    trouble = str(error)
                    _log.warning("%s are not reported: %s", what, printable(trouble)[:1000])
                over.wait(1.0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        link.close()
        thread.join()
