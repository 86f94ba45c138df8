"""A broker for agents that does nothing else: what docs/agents.md says, in the smallest way.

It lists what it is given, records what comes, and can be made to behave badly.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from examples.testbed.ports import free_port
from monitors.measurements.agent.messages import Assignment

HORIZON_S = 300.0
IDLE_S = 0.5  # then it closes a connection on which nothing more is asked


@dataclass
class Desk:
    """What one agent is told, and has told."""

    token: str
    assignments: list[Assignment] = field(default_factory=list)
    version: int = 1
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    """How often each result was taken as new: never more than once."""
    asked: list[dict[str, str]] = field(default_factory=list)
    refuse: dict[str, str] = field(default_factory=dict)
    authorized: list[str | None] = field(default_factory=list)


class FakeBroker:
    """Listens on ``host`` until :meth:`stop`; ``clock`` is its wall clock."""

    def __init__(
        self,
        tokens: Mapping[str, str],
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
        host: str = "127.0.0.1",
        port: int = 0,
        desks: dict[str, Desk] | None = None,
    ) -> None:
        self.desks = desks or {name: Desk(token) for name, token in tokens.items()}
        self.clock = clock
        self.changed = threading.Condition()
        self.instead: Callable[[str], tuple[int, bytes] | None] = lambda path: None
        """What is answered in place of an answer."""
        self.forget_receipts = 0
        """So many results are recorded, and the connection is cut before the answer."""
        self.stopped = False
        broker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                broker.answer(self, None)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                broker.answer(self, self.rfile.read(length))

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def finish_request(self, request: Any, client_address: Any) -> None:
                if tls is not None:  # in the connection's own thread: a handshake may take long
                    try:
                        request = tls.wrap_socket(request, server_side=True)
                    except OSError:
                        return
                super().finish_request(request, client_address)

            def handle_error(self, *_: object) -> None:
                pass

        self._server = Server((host, port or free_port()), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"{'https' if tls else 'http'}://{host}:{self.port}"

    def stop(self) -> None:
        """No answers any more, and no port."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def tell(self, name: str, *assignments: Assignment) -> None:
        """Have an agent do these, too."""
        with self.changed:
            self.desks[name].assignments += assignments
            self.desks[name].version += 1
            self.changed.notify_all()

    def wait(self, name: str, *ids: str, timeout_s: float = 240.0) -> list[dict[str, Any]]:
        """The results of these assignments, once they are all there."""
        results = self.desks[name].results
        with self.changed:
            there = self.changed.wait_for(lambda: all(i in results for i in ids), timeout_s)
        assert there, f"{name}: {[i for i in ids if i not in results]} did not come: {results}"
        return [results[i] for i in ids]

    def wait_asked(self, name: str, times: int = 1, timeout_s: float = 240.0) -> None:
        """Until the agent has asked so often in all."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.desks[name].asked) >= times, timeout_s), (
                f"{name} did not ask"
            )

    # -- within ------------------------------------------------------------------------------

    def answer(self, request: BaseHTTPRequestHandler, body: bytes | None) -> None:
        """One question."""
        received = self.clock()
        url = urlsplit(request.path)
        name, _, what = unquote(url.path.removeprefix("/v1/agents/")).rpartition("/")
        desk = self.desks.get(name)
        other = self.instead(what)
        if other is not None:
            self._send(request, *other)
            return
        if desk is None:
            self._send(request, 404, _error("unknown_agent"))
            return
        authorization = request.headers["Authorization"]
        desk.authorized.append(authorization)
        if authorization not in (None, f"Bearer {desk.token}"):
            self._send(request, 401, _error("unauthorized"))
            return
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        reply = self._listed(desk, query) if body is None else self._taken(desk, body)
        if reply is None:
            request.close_connection = True
            return
        reply = {"agent": name, "received": received, "sent": self.clock(), **reply}
        self._send(request, 200, json.dumps(reply).encode())

    def _listed(self, desk: Desk, query: dict[str, str]) -> dict[str, Any] | None:
        with self.changed:
            desk.asked.append(query)
            self.changed.notify_all()
            self.changed.wait_for(
                lambda: self.stopped or str(desk.version) != query["after"], float(query["wait_s"])
            )
            if self.stopped:
                return None
            now = self.clock()
            listed = [a for a in desk.assignments if now < a.at + a.duration_s < now + HORIZON_S]
            return {
                "version": desk.version,
                "until": now + HORIZON_S,
                "assignments": [a.as_dict() for a in listed],
            }

    def _taken(self, desk: Desk, body: bytes) -> dict[str, Any] | None:
        accepted, refused = [], {}
        with self.changed:
            if self.stopped:
                return None
            for result in json.loads(body)["results"]:
                key = result["assignment"]
                if key in desk.refuse:
                    refused[key] = desk.refuse[key]
                    continue
                if key not in desk.results:
                    desk.results[key] = result
                    desk.times[key] = desk.times.get(key, 0) + 1
                elif desk.results[key] != result:
                    desk.times[key] += 1
                accepted.append(key)
            self.changed.notify_all()
            if self.forget_receipts > 0:
                self.forget_receipts -= 1
                return None
        return {"accepted": accepted, "refused": refused}

    @staticmethod
    def _send(request: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
        request.connection.settimeout(IDLE_S)


def _error(code: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": code}}).encode()
