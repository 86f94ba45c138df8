"""A process that tells people is killed at any time; the next one goes on, under the same key."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monitors.archive import Archive

pytestmark = [pytest.mark.component, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 300.0
TELL = """\
import json, sys, time
from monitors.archive import Archive
from monitors.notices.data import check_targets
from monitors.notices.service import NoticeService

with Archive(sys.argv[1]) as archive:
    targets = check_targets(json.loads(sys.argv[2]))
    service = NoticeService(targets, archive, time.time, time.monotonic)
    service.start()
    if len(sys.argv) > 3:
        service.tell("anomaly", sys.argv[3], "it dips", {"metric": "rtt"})
    print("told", flush=True)
    sys.stdin.read()
    service.stop()
"""


class Hook(http.server.ThreadingHTTPServer):
    """Holds what it is sent until it may answer. On a busy machine it answers too late now and
    then, and is sent the same again."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.bodies: list[Any] = []
        self.came, self.may_answer = threading.Event(), threading.Event()
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hook.keys.append(self.headers["Idempotency-Key"])
                hook.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                hook.came.set()
                hook.may_answer.wait(WAIT_S)
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.may_answer.set()
    server.shutdown()
    thread.join()
    server.server_close()


def teller(archive: Path, target: dict[str, Any], *key: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", TELL, str(archive), json.dumps([target]), *key]
    return subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ends(archive: Path) -> list[str]:
    with Archive(archive) as opened:
        return [m.details["outcome"] for m in opened.query("notice") if m.id.endswith(":end")]


def until_ended(archive: Path) -> list[str]:
    deadline = time.monotonic() + WAIT_S
    while not (found := ends(archive)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_web_hook_gets_the_same_key_again(hook: Hook, tmp_path: Path) -> None:
    archive = tmp_path / "a.sqlite"
    target = {"webhook": f"http://127.0.0.1:{hook.server_port}/"}
    with teller(archive, target, "dip-1") as first:
        assert hook.came.wait(WAIT_S)
        first.send_signal(signal.SIGKILL)
    assert ends(archive) == []
    hook.may_answer.set()
    with teller(archive, target) as second:
        assert until_ended(archive) == ["delivered"]
        second.communicate()
    told = len(hook.keys)
    assert told >= 2 and len(set(hook.keys)) == 1
    assert all(body == hook.bodies[0] for body in hook.bodies)
    with teller(archive, target, "dip-1") as third:  # found again
        third.communicate()
    assert len(hook.keys) == told


def test_a_command_that_had_begun_is_not_run_again(tmp_path: Path) -> None:
    archive, mark = tmp_path / "a.sqlite", tmp_path / "mark"
    code = f"import os, time; open({str(mark)!r}, 'a').write(f'{{os.getpid()}} '); time.sleep(600)"
    target = {"command": [sys.executable, "-c", code]}
    with teller(archive, target, "dip-1") as first:
        deadline = time.monotonic() + WAIT_S
        while not mark.exists() or not mark.read_text().endswith(" "):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
    (number,) = mark.read_text().split()
    try:
        with teller(archive, target) as second:
            assert until_ended(archive) == ["given up"]
            second.communicate()
        assert mark.read_text().split() == [number]
    finally:
        os.kill(int(number), signal.SIGKILL)
