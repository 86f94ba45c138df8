"""Where measurements go: an archive of this machine, or a broker's over HTTP.

:class:`~.Archive` is a sink as it is. What a sink did not take is kept by whoever
measured, and sent again; ids are taken once, so that sending twice doubles nothing.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Protocol
from urllib.parse import urlencode

from monitors.archive.archive import Archive, ArchiveError, Selection
from monitors.base.background import Background
from monitors.base.measurement import Measurement, believable, check_sendable, to_row
from monitors.workflows.logs.status import Status
from network_provisioner.base.errors import AdonError, BrokerError, InputError, printable
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.http1 import Tls

_log = logging.getLogger(__name__)

# What a broker takes at once is less than 256 kB and no more than 5000 measurements.
_MOST_BYTES = 200_000
_MOST = 5000

# What it says of a request that it will never take. Anything else may go another time.
_REFUSED = frozenset({"bad_request", "bad_time", "forbidden", "too_large"})
_MOST_REASONS = 100  # that are told apart
_WAIT_S = 10.0  # the broker holds a question for so long where there is nothing to answer
_AGAIN_S = 5.0
_FAREWELL_S = 2.0  # to say that this one ends
_KEPT = 1000


class Sink(Protocol):
    """Takes measurements, each id once."""

    def record_many(self, measurements: Iterable[Measurement]) -> int:
        """Take them; how many were new. Raises ArchiveError or SinkError where they could not be
        taken just now: then some may have been, and sending all again is harmless."""


class Requests(Protocol):
    """Where other processes ask to have a workflow measured, such as an archive."""

    def requests(self, kind: str, after: int = 0) -> list[tuple[int, str, float]]:
        """Number, workflow and time (Unix seconds) of every request above ``after``."""


class SinkError(AdonError):
    """The broker does not take measurements just now."""

    code = "archive_unavailable"


def known_status(sink: Sink, workflow: str, until: float) -> Status | None:
    """The newest status of a workflow until a time (Unix seconds) that a sink can tell of; None
    where it cannot."""
    if not isinstance(sink, Archive):
        return None
    try:
        selection = Selection(("status",), workflow, until=until)
        newest = sink.page(selection, newest=True, limit=1)
        return Status.from_measurement(newest[0][1]) if newest else None
    except (ArchiveError, KeyError, TypeError, ValueError):
        return None


def known_user(sink: Sink, workflow: str) -> str:
    """Whose a workflow is, as a sink can tell; "" where it cannot."""
    try:
        record = sink.get(f"workflow:{workflow}") if isinstance(sink, Archive) else None
    except (ArchiveError, InputError):
        return ""
    return str(record.details.get("user", "")) if record is not None else ""


def record_what_fits(sink: Sink, measurements: Sequence[Measurement]) -> None:
    """Have a sink take them, without those that no archive takes, or that nobody would believe:
    what stands in logs is foreign.

    Raises ArchiveError or SinkError.
    """
    measurements, doubt = believable(measurements, time.time())
    if doubt:
        _log.warning("not recorded: %s", printable(doubt))
    try:
        sink.record_many(measurements)
    except InputError as error:
        fitting = list(_fitting(measurements))
        if len(fitting) == len(measurements):
            raise SinkError(str(error)) from error
        sink.record_many(fitting)


def _fitting(
    measurements: Iterable[Measurement], check: Callable[[Measurement], object] = to_row
) -> Iterator[Measurement]:
    for measurement in measurements:
        try:
            check(measurement)
        except InputError as error:
            _log.warning("not recorded: %s", printable(str(error)))
        else:
            yield measurement


class BrokerSink:
    """The archive of a broker, which is asked at ``url`` with ``token`` and ``tls``.

    What the broker refuses for good (another user's workflow, a unit that is none) is left out; it
    must not keep everything else from being sent. The log says each reason once, and again, with
    how often, whenever that has become ten times as often. Raises InputError for a URL or a token
    that is none.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        tls: Tls | None = None,
        timeout_s: float = 15.0,
    ) -> None:
        self._client = BrokerClient(url, timeout_s, token, tls)
        self._refused: Counter[str] = Counter()

    def record_many(self, measurements: Iterable[Measurement]) -> int:
        """See :class:`Sink`."""
        return sum(self._send(batch) for batch in _batches(measurements))

    def _send(self, batch: Sequence[dict[str, Any]]) -> int:
        try:
            body = {"measurements": [*batch]}
            return self._client.read(_recorded, "POST", "/v1/measurements", body)
        except BrokerError as error:
            if error.code not in _REFUSED:
                raise SinkError(str(error)) from error
            if len(batch) > 1:  # all or none: the others are not to blame
                half = len(batch) // 2
                return self._send(batch[:half]) + self._send(batch[half:])
            self._say(batch[0], str(error))
            return 0

    def _say(self, item: dict[str, Any], error: str) -> None:
        """Each reason once, and again when it was met ten times as often."""
        reason = error
        for name in ("id", "subject", "workflow"):  # of which each measurement has its own
            reason = reason.replace(repr(item[name]), "…") if item[name] else reason
        if reason not in self._refused and len(self._refused) == _MOST_REASONS:
            reason = "other reasons"
        self._refused[reason] += 1
        count = self._refused[reason]
        if count == 10 ** (len(str(count)) - 1):
            times = f", the {count}th so refused" if count > 1 else ""
            _log.warning("the broker will not take %s%s: %s", item["id"], times, error)


def _batches(measurements: Iterable[Measurement]) -> Iterator[list[dict[str, Any]]]:
    """Portions that a broker takes at once. What no archive or broker takes is left out."""
    batch: list[dict[str, Any]] = []
    size = 0
    for measurement in _fitting(_fitting(measurements), check_sendable):
        item = asdict(measurement) | {"details": dict(measurement.details)}
        length = len(json.dumps(item)) + 2
        if batch and (size + length > _MOST_BYTES or len(batch) == _MOST):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield batch


class BrokerRequests:
    """What is asked at ``url``, from :meth:`start` to :meth:`stop`; what was asked before is of
    those who do not wait any more. Raises InputError for a URL or a token that is none."""

    def __init__(self, url: str, token: str | None = None, tls: Tls | None = None) -> None:
        self._client = BrokerClient(url, _WAIT_S + 15.0, token, tls)
        self._farewell = BrokerClient(url, _FAREWELL_S, token, tls)
        self._name = f"{socket.gethostname()}, process {os.getpid()}"
        self._thread = Background("requests", self._run)
        self._stop = self._thread.stopping
        self._lock = threading.Lock()
        self._recent: list[tuple[int, str, float]] = []

    def requests(self, kind: str, after: int = 0) -> list[tuple[int, str, float]]:
        """See :class:`monitors.workflows.sink.Requests`. Returns at once."""
        with self._lock:
            return [request for request in self._recent if request[0] > after]

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End; a question that waits for its answer is left to itself."""
        self._thread.stop(longest_s=0)
        with suppress(AdonError):
            self._farewell.read(_requests, "GET", self._path(2**62, 0.0) + "&ends=true")

    def _run(self) -> None:
        after, first, warned, failed = 0, True, "", ""
        while not self._stop.is_set():
            try:
                path = self._path(after, 0.0 if first else _WAIT_S)
                requests = self._client.read(_requests, "GET", path)
                warned = failed = ""
            except AdonError as error:
                # Once, however long it lasts; not of the first try: who records there says it too.
                if str(error) == failed != warned:
                    warned = failed
                    _log.warning("requests to measure at once: %s", error)
                failed = str(error)
                self._stop.wait(_AGAIN_S)
                continue
            after = max((number for number, _, _ in requests), default=after)
            if not first:
                with self._lock:
                    self._recent = (self._recent + requests)[-_KEPT:]
            first = False

    def _path(self, after: int, wait_s: float) -> str:
        query = {"after": after, "wait_s": f"{wait_s:g}", "follower": self._name}
        return f"/v1/refreshes?{urlencode(query)}"


def _recorded(answer: Any) -> int:
    return int(answer["recorded"])


def _requests(rows: Any) -> list[tuple[int, str, float]]:
    return [(int(r["request"]), str(r["workflow"]), float(r["at"])) for r in rows]
