"""Programs that are run and stopped, and what is said when they fail."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from examples.testbed import procs
from network_provisioner.base.errors import AdonError, MissingError

# Starts a child of its own that ignores TERM, tells both ids, and waits for ever.
FAMILY = """
import os, signal, sys, time
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True: time.sleep(60)
print(child, flush=True)
while True: time.sleep(60)
"""


def test_a_program_that_is_not_there():
    with pytest.raises(MissingError, match="cannot run no-such-program: not found"):
        procs.run(["no-such-program"])


def test_a_program_that_fails_is_quoted():
    with pytest.raises(AdonError, match=r": exit code 3: second\Z"):
        procs.run(["sh", "-c", "echo first >&2; echo second >&2; exit 3"])


def test_a_program_that_does_not_end():
    with pytest.raises(AdonError, match=r"no end within 0.05 s"):
        procs.run(["sleep", "60"], timeout_s=0.05)


def test_a_daemon_stops_with_all_it_started(tmp_path: Path):
    daemon = procs.Daemon([sys.executable, "-c", FAMILY], tmp_path / "log")
    grandchild = int(daemon.wait((tmp_path / "log").read_text))
    watch = os.pidfd_open(grandchild)
    assert daemon.running()
    daemon.stop()
    daemon.stop()
    assert not daemon.running()
    assert procs._ended(watch, 20)
    os.close(watch)


def test_a_daemon_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path):
    words = [sys.executable, "-c", "raise SystemExit('no such device')"]
    daemon = procs.Daemon(words, tmp_path / "log", name="link")
    with pytest.raises(AdonError, match="link ended: no such device"):
        daemon.wait(lambda: False)
    daemon.stop()


def test_a_daemon_that_does_not_get_ready_is_reported(tmp_path: Path):
    daemon = procs.Daemon(["sleep", "60"], tmp_path / "log")
    with pytest.raises(AdonError, match="sleep did not get ready: no output"):
        daemon.wait(lambda: False, 0.0)
    daemon.stop()
