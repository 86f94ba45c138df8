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


IN_ORDER = """
from examples.testbed import ports
class InOrder:
    sample = staticmethod(lambda places, count: places[:count])
ports._dice = InOrder
print(*ports.free_ports(5, 20_000), flush=True)  # of hundreds, whoever else has some
input()
"""


def test_two_processes_are_not_given_the_same() -> None:
    words = [sys.executable, "-c", IN_ORDER]
    first = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with first:
        assert first.stdout and first.stdin
        theirs = set(first.stdout.readline().split())
        second = subprocess.run(words, input="\n", capture_output=True, text=True, check=True)
        ours = set(second.stdout.split())
        first.communicate("\n")
    assert len(theirs) == 5 and len(ours | theirs) == 10
    third = subprocess.run(words, input="\n", capture_output=True, text=True, check=True)
    assert theirs & set(third.stdout.split())  # given back by those that have ended
