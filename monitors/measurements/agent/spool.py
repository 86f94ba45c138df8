"""Results until the broker has taken them, on disk: an agent that is killed loses none.

One file for each run. It is there before the run begins (``begun``), has its result from the end on
(``ended``), and stays a while when the broker has taken it (``taken``), so that an agent that is
started anew does not do the same again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from monitors.measurements.agent.messages import Assignment, Result
from network_provisioner.base.errors import InputError

_log = logging.getLogger(__name__)
_OURS = re.compile("[0-9a-f]{40}")  # the stem of a file's name

MOST_RESULTS = 20_000
MOST_BYTES = 64 * 2**20
MOST_RESULT_BYTES = 200_000
"""Of one result, and of those that are sent together: the broker takes 256 KiB."""
_KILLED = "the agent was killed while it measured"


@dataclass(slots=True)
class _Entry:
    state: str
    until: float
    body: bytes
    """The result as JSON: that of a killed agent until there is another."""
    order: int


class Spool:
    """For one process at a time; its threads may share it. Where the disk takes nothing, it goes on
    in memory and says so once."""

    def __init__(
        self, folder: Path, most: int = MOST_RESULTS, most_bytes: int = MOST_BYTES
    ) -> None:
        """Opens ``folder``, which is made where it is not there.

        Raises InputError where that cannot be, or another agent has it.
        """
        self._folder = folder
        self._most, self._most_bytes = most, most_bytes
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._count = 0
        self._troubled = False
        self.dropped = 0
        """Results that were thrown away because there were too many."""
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._held: IO[bytes] = (folder / "lock").open("wb")
        except OSError as error:
            raise InputError(
                f"state: {folder}: {error.strerror}, expected a directory to write to"
            ) from None
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._held.close()
            raise InputError(f"state: {folder} is used by another agent that runs now") from None
        self._load()

    def close(self) -> None:
        """Release the folder."""
        self._held.close()

    def known(self) -> list[tuple[str, float]]:
        """The runs that have begun, and when they are over."""
        with self._lock:
            return [(key, entry.until) for key, entry in self._entries.items()]

    def waiting(self, most: int, most_bytes: int) -> list[tuple[str, bytes]]:
        """The oldest results that the broker has not taken, as JSON: at least one if there is any,
        else not above ``most_bytes`` together."""
        with self._lock:
            ended = [(e.order, k, e.body) for k, e in self._entries.items() if e.state == "ended"]
        chosen: list[tuple[str, bytes]] = []
        for _, key, body in sorted(ended):
            most_bytes -= len(body)
            if chosen and (most_bytes < 0 or len(chosen) >= most):
                break
            chosen.append((key, body))
        return chosen

    def unsent(self) -> int:
        """How many results wait."""
        with self._lock:
            return sum(entry.state == "ended" for entry in self._entries.values())

    def begin(self, assignment: Assignment, started: float) -> None:
        """A run begins at ``started`` (Unix seconds of this machine)."""
        until = assignment.at + assignment.duration_s
        killed = Result(assignment.id, assignment.task, started, started, error=_KILLED)
        with self._lock:
            self._put(assignment.id, "begun", until, _json(killed))

    def end(self, result: Result, until: float) -> None:
        """A run has ended with this; ``until`` its time is over (broker's clock)."""
        with self._lock:
            self._put(result.assignment, "ended", until, _sendable(_json(result)))
            self._make_room()

    def taken(self, keys: Iterable[str]) -> None:
        """The broker has accepted or refused these."""
        with self._lock:
            for key in keys:
                entry = self._entries.get(key)
                if entry is not None and entry.state == "ended":
                    self._put(key, "taken", entry.until, b"null")

    def forget(self, before: float) -> None:
        """Forget accepted results of runs that were over ``before`` (broker's clock)."""
        with self._lock:
            gone = [k for k, e in self._entries.items() if e.state == "taken" and e.until < before]
            for key in gone:
                self._remove(key)

    def _put(self, key: str, state: str, until: float, body: bytes) -> None:
        self._count += 1
        entry = _Entry(state, until, body, self._count)
        self._entries[key] = entry
        head = {"id": key, "state": state, "until": until, "order": entry.order}
        text = json.dumps(head).encode() + b"\n" + body + b"\n"
        file = self._file(key)
        fresh = file.with_suffix(".new")
        try:
            with fresh.open("wb") as out:
                out.write(text)
                if state == "ended":  # the others would only cost a run, and time at its start
                    out.flush()
                    os.fsync(out.fileno())
            fresh.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            if not self._troubled:
                _log.warning(
                    "%s: %s: results are kept in memory alone", self._folder, error.strerror
                )
            self._troubled = True
        else:
            self._troubled = False

    def _make_room(self) -> None:
        ended = sorted(
            (e.order, k, len(e.body)) for k, e in self._entries.items() if e.state == "ended"
        )
        count, total = len(ended), sum(size for _, _, size in ended)
        for _, key, size in ended:
            if count <= self._most and total <= self._most_bytes:
                return
            count, total = count - 1, total - size
            self.dropped += 1
            self._remove(key)

    def _remove(self, key: str) -> None:
        del self._entries[key]
        with contextlib.suppress(OSError):
            self._file(key).unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.run"

    def _load(self) -> None:
        results = []
        for file in self._folder.iterdir():
            if not _OURS.fullmatch(file.stem):
                continue
            if file.suffix == ".new":  # killed while it wrote
                file.unlink(missing_ok=True)
            elif file.suffix == ".run":
                try:
                    results.append(_read(file.read_bytes()))
                except (OSError, ValueError, KeyError, TypeError) as error:
                    _log.warning("%s: cannot be read (%s): left out", file, error)
                    with contextlib.suppress(OSError):
                        file.unlink()
        for key, entry in sorted(results, key=lambda pair: pair[1].order):
            self._count = max(self._count, entry.order)
            self._entries[key] = entry
            if entry.state == "begun":
                self._put(key, "ended", entry.until, entry.body)
        self._make_room()


def _json(result: Result) -> bytes:
    return json.dumps(result.as_dict()).encode()


def _sendable(body: bytes) -> bytes:
    """A result that a broker takes: one that is too large says so in place of what was measured."""
    if len(body) <= MOST_RESULT_BYTES:
        return body
    why = f"the result has {len(body)} bytes, expected at most {MOST_RESULT_BYTES}"
    return json.dumps(json.loads(body) | {"measurements": [], "error": why}).encode()


def _read(data: bytes) -> tuple[str, _Entry]:
    """Raises ValueError, KeyError or TypeError for what no agent wrote."""
    head, _, rest = data.partition(b"\n")
    values: dict[str, Any] = json.loads(head)
    body, end, _ = rest.partition(b"\n")
    if not end or values["state"] not in ("begun", "ended", "taken"):
        raise ValueError("it is torn")
    if values["state"] != "taken" and json.loads(body)["assignment"] != values["id"]:
        raise ValueError("it holds another run's result")
    body = _sendable(body)
    entry = _Entry(values["state"], float(values["until"]), body, int(values["order"]))
    return str(values["id"]), entry
