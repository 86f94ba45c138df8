"""Sockets of the switches are widened, whatever becomes of those that were only listed."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from adon.machine import syscalls
from examples.testbed.switches import _sockets, _widen


@pytest.fixture
def pidfd() -> Iterator[int]:
    """This process, of which the kernel may forbid copies as well."""
    found = os.pidfd_open(os.getpid())
    try:
        os.close(syscalls.pidfd_getfd(found, found))
    except OSError as error:
        pytest.skip(f"pidfd_getfd: {error.strerror}")
    yield found
    os.close(found)


def test_a_socket_that_was_closed_meanwhile_is_passed_over(pidfd: int) -> None:
    with socket.socket() as sock:
        number = sock.fileno()
        assert number in _sockets(os.getpid())
    assert not _widen(pidfd, number)


def test_other_sockets_are_left_alone(pidfd: int) -> None:
    with socket.socket() as sock:
        before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert not _widen(pidfd, sock.fileno())
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before


@pytest.mark.usefixtures("pidfd")
def test_switches_that_have_ended_are_an_error() -> None:
    with subprocess.Popen(["true"]) as ended:
        gone = os.pidfd_open(ended.pid)
    with pytest.raises(ProcessLookupError):
        _widen(gone, 0)
    os.close(gone)
