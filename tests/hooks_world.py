"""A submit directory, a broker and broken brokers for the tests of hooks and planner."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from made_transit import made_transit

from monitors.workflows.planned import transferlist
from monitors.workflows.planned.transferlist import Entry, SiteUrl, Transfer
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import (
    RequestAnswer,
    Service,
    Transit,
    TransitRequest,
    TransitState,
)

ROOT = Path(__file__).resolve().parents[1]
PRE = ROOT / "pegasus_hooks" / "pre.py"
POST = ROOT / "pegasus_hooks" / "post.py"
WF_UUID = "11111111-2222-3333-4444-555555555555"


def move(
    lfn: str, src: str, dst: str, size: int | None = None, at: str = "/x", to: str = "/y"
) -> Transfer:
    """A transfer of one file from ``at`` to ``to``, both file:// so that it can be run."""
    return Transfer(
        lfn,
        (SiteUrl(src, f"file://{at}/{lfn}", 100),),
        (SiteUrl(dst, f"file://{to}/{lfn}"),),
        size,
    )


def make_submit_dir(
    where: Path, lists: Mapping[str, Sequence[Entry]], others: Sequence[str] = ()
) -> Path:
    """A submit directory of Pegasus's shape: transfer jobs with lists, other jobs without."""
    (where / "00" / "00").mkdir(parents=True)
    (where / "braindump.yml").write_text(
        f'user: "u"\ngrid_dn: null\nwf_uuid: "{WF_UUID}"\ndag: "flow-0.dag"\n'
    )
    jobs = [*lists, *others]
    (where / "flow-0.dag").write_text(
        "MAXJOBS stagein 10\n\n" + "".join(f"JOB {j} 00/00/{j}.sub\nRETRY {j} 1\n" for j in jobs)
    )
    for job, entries in lists.items():
        (where / "00/00" / f"{job}.in").write_text(transferlist.dumps(entries))
    return where


# Far above what any answer takes, also on a busy machine.
PATIENT_S = 300.0


def write_config(path: Path, url: str, **more: Any) -> Path:
    data = {"broker": url, "timeout_s": PATIENT_S, "template": "default", **more}
    path.write_text(json.dumps(data))
    return path


def hook(script: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a hook as DAGMan does."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(script), *arguments],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def journal(submit_dir: Path) -> list[dict[str, Any]]:
    path = submit_dir / "adon-hooks.jsonl"
    # A hook may be about to write the last line.
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


class FakeBroker:
    """Answers from a script: for each request, and each look at one that waits, the next of
    ``states`` (the last repeats). What is asked for as best effort is that and takes no state."""

    def __init__(self, *states: TransitState | BrokerError, granted_bps: float = 1e8) -> None:
        self.states = list(states) or [TransitState.INSTALLED]
        self.granted_bps = granted_bps
        self.lease_until = 0.0
        self.service = Service()
        self.asked: list[TransitRequest] = []
        self.told: list[TransitRequest] = []
        self.calls = 0
        self.released: list[tuple[str, int, float, str]] = []
        self.used: list[dict[str, int]] = []
        self.renewed: list[tuple[str, float]] = []
        self.ended: set[str] = set()
        self.unknown: set[str] = set()
        self.refuses: dict[str, BrokerError] = {}
        self.refuses_release: BrokerError | None = None
        self._known: dict[str, TransitRequest] = {}

    def ask(self, requests: Sequence[TransitRequest], /) -> list[RequestAnswer]:
        self.calls += 1
        return [self._answer(request) for request in requests]

    def _answer(self, request: TransitRequest) -> RequestAnswer:
        if request.best_effort:
            self.told.append(request)
            transit = self.transit(request.id, TransitState.BEST_EFFORT, request)
            transit.reason = request.best_effort
            return RequestAnswer(transit, self.service)
        if request.dst in self.refuses:
            return RequestAnswer(None, self.service, self.refuses[request.dst])
        return RequestAnswer(self.request(request), self.service)

    def request(self, request: TransitRequest) -> Transit:
        self.asked.append(request)
        state = self._next()
        given, number = request.id, 1
        while given in self.ended:
            number += 1
            given = f"{request.id}.{number}"
        self._known[given] = request
        return self.transit(given, state, request)

    def get(self, transit_id: str, /) -> Transit:
        return self.transit(transit_id, self._next(), self._known.get(transit_id))

    def _next(self) -> TransitState:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, BrokerError):
            raise state
        return state

    def transit(
        self, transit_id: str, state: TransitState, request: TransitRequest | None = None
    ) -> Transit:
        return made_transit(
            transit_id,
            request.src if request else "a",
            request.dst if request else "b",
            state,
            path=["a", "s1", "b"],
            layer="l2",
            granted_bps=self.granted_bps if state is TransitState.INSTALLED else 0.0,
            size_bytes=request.size_bytes if request else None,
            lease_until=self.lease_until,
            reason="because",
        )

    def release(
        self,
        transit_id: str,
        bytes_moved: int = 0,
        seconds: float = 0.0,
        outcome: str = "",
        **used: int,
    ) -> Transit:
        if self.refuses_release is not None:
            raise self.refuses_release
        number = transit_id.rpartition(".")[2]
        again = number.isdecimal() and transit_id not in {*self._known, *self.ended}
        if again or transit_id in self.unknown:
            raise BrokerError("no such transit", "unknown_transit")
        self.released.append((transit_id, bytes_moved, seconds, outcome))
        self.used.append(used)
        return self.transit(transit_id, TransitState.RELEASED)

    def renew(self, transit_id: str, lease_s: float) -> Transit:
        self.renewed.append((transit_id, lease_s))
        return self.transit(transit_id, TransitState.INSTALLED)


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server that treats every connection with ``answer``, until the block ends."""
    server = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            held.append(connection)
            try:
                answer(connection)
            except OSError:  # the hook went away, as it should
                continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in held:
            connection.close()
        thread.join(5)


def never(_connection: socket.socket) -> None:
    """Accepts, and answers nothing."""


def respond(text: bytes) -> Callable[[socket.socket], None]:
    """Answers ``text`` to whatever was asked, when all of it is there: who closes a connection
    with something unread in it tears it down, and its answer may be lost."""

    def answer(connection: socket.socket) -> None:
        with connection.makefile("rb") as reader:
            length = 0
            while line := reader.readline().strip().lower():
                if line.startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            reader.read(length)
        connection.sendall(text)
        connection.close()

    return answer


def http(status: str, body: bytes) -> bytes:
    """An HTTP answer."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
