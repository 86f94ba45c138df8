"""Ports that are free, and stay so until their server takes them."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from examples.testbed import ports
from examples.testbed.ports import LOOPBACK, free_ports
from network_provisioner.base.errors import MissingError


def test_a_port_in_use_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_LOWEST", port)
        with pytest.raises(MissingError, match="found no free port among 1, expected 1"):
            free_ports(1, port + 1)


SAME_PLACES = """
import sys
from examples.testbed import ports
ports._LOWEST = int(sys.argv[1])
print(*ports.free_ports(5, ports._LOWEST + 12), flush=True)  # two may be in use
input()
"""


def test_two_processes_are_not_given_the_same() -> None:
    low = free_ports(1)[0]
    words = [sys.executable, "-c", SAME_PLACES, str(low + 1)]
    first = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with first:
        assert first.stdout and first.stdin
        theirs = set(first.stdout.readline().split())
        second = subprocess.run(words, input="\n", capture_output=True, text=True, check=False)
        ours = set(second.stdout.split())
        first.communicate("\n")
    assert len(theirs) == 5 and len(ours | theirs) == 10, second.stderr
    third = subprocess.run(words, input="\n", capture_output=True, text=True, check=True)
    assert len(third.stdout.split()) == 5  # given back by those that have ended
