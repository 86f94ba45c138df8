"""Workflows that an agent follows beside its measurements, and reports to its broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from monitors.measurements.agent.settings import AgentSettings
from monitors.workflows.service import FollowService
from monitors.workflows.sink import BrokerRequests, BrokerSink


@contextmanager
def following(settings: AgentSettings) -> Iterator[None]:
    """Follow the workflows of the settings meanwhile. Raises InputError."""
    if not settings.workflows:
        yield
        return
    token = None if settings.tls.certificate else settings.token
    sink = BrokerSink(settings.broker, token, settings.tls)
    requests = BrokerRequests(settings.broker, token, settings.tls)
    service = FollowService(sink, settings.workflows, time.time, requests=requests)
    requests.start()
    service.start()
    try:
        yield
    finally:
        requests.stop()
        service.stop()
