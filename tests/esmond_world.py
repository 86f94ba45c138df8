"""An esmond-style archive: answers as documented, over HTTP.

Metadata come in pages with ``metadata-count-total`` in the first, of tests that have something
since ``time-start``; results are chosen by ``time-start`` and ``time-end`` (both inclusive),
``limit`` and ``offset``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ROOT = "/esmond/perfsonar/archive/"
Points = dict[int, Any]


class Esmond:
    """What is in it, and what it was asked."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self.points: dict[tuple[str, str], Points] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.url = ""

    def add(self, key: str, source: str, destination: str, **more: Any) -> None:
        """A test, without results."""
        self.tests[key] = {
            "source": "10.1.1.1", "destination": "10.1.1.2", "input-source": source,
            "input-destination": destination, "measurement-agent": "10.1.1.1",
            "metadata-key": key, "subject-type": "point-to-point",
            "tool-name": "pscheduler/iperf3", "time-duration": "20", "uri": f"{ROOT}{key}/",
            "ip-transport-protocol": "tcp",
        } | more  # fmt: skip

    def put(self, key: str, event_type: str, points: Points) -> None:
        """Results of a test, as pScheduler's archiver puts them."""
        self.points.setdefault((key, event_type), {}).update(points)

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        """JSON of a GET; None if there is nothing."""
        limit = int(query.get("limit", ["1000"])[0])
        offset = int(query.get("offset", ["0"])[0])
        first = int(query.get("time-start", ["0"])[0])
        last = int(query.get("time-end", ["99999999999"])[0])
        if path == ROOT:
            matches = [self._metadata(key) for key in self.tests if self._has_since(key, first)]
            for name, wanted in query.items():
                if name not in ("limit", "offset", "format", "time-start"):
                    matches = [entry for entry in matches if [entry.get(name)] == wanted]
            page = matches[offset : offset + limit]
            if page:
                page[0]["metadata-count-total"] = len(matches)
            return page
        key, event_type, _ = path.removeprefix(ROOT).split("/")
        known = self.points.get((key, event_type), {})
        chosen = [{"ts": at, "val": known[at]} for at in sorted(known) if first <= at <= last]
        return chosen[offset : offset + limit]

    def _has_since(self, key: str, first: int) -> bool:
        """A time in the query is for tests that have something since then."""
        times = [at for (of, _), points in self.points.items() if of == key for at in points]
        return not times or max(times) >= first

    def _metadata(self, key: str) -> dict[str, Any]:
        types = [
            {
                "base-uri": f"{ROOT}{key}/{event_type}/base",
                "event-type": event_type,
                "summaries": [],
                "time-updated": max(points) if points else None,
            }
            for (of, event_type), points in self.points.items()
            if of == key
        ]
        return {**self.tests[key], "event-types": types}


@contextmanager
def serving(world: Esmond) -> Iterator[str]:
    """The archive behind a socket; the URL of its list."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            world.asked.append(self.path)
            world.headers.append(dict(self.headers))
            parts = urlsplit(self.path)
            status, body = world.answers.get(parts.path, (0, b""))
            if not status:
                body = json.dumps(world.answer(parts.path, parse_qs(parts.query))).encode()
            self.send_response(status or 200)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    world.url = f"http://127.0.0.1:{server.server_address[1]}{ROOT}"
    try:
        yield world.url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
