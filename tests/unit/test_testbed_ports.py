"""Ports that are free, and stay so until their server takes them."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from examples.testbed import ports
from examples.testbed.ports import LOOPBACK, free_port, free_ports
from network_provisioner.base.errors import MissingError


def test_they_differ_and_can_be_taken() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    for port in found:
        with socket.create_server((LOOPBACK, port)):
            pass


def test_the_kernel_gives_them_to_nobody() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if low < 11_000:
        pytest.skip("here the kernel gives out all ports")
    assert not low <= free_port() <= high


@pytest.mark.parametrize("low", [0, 1024, 10_000])
def test_where_the_kernel_gives_out_all_ports(low: int) -> None:
    assert len(set(free_ports(5, low))) == 5


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
