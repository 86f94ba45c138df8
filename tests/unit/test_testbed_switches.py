"""Sockets of the switches are widened, whatever becomes of those that were only listed."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from adon.machine import syscalls
from examples.testbed.switches import _sockets, _widen


@pytest.fixture
def pidfd() -> Iterator[int]:
    """This process, of which the kernel may forbid copies as well."""
    fd = os.pidfd_open(os.getpid())
    try:
        os.close(syscalls.pidfd_getfd(fd, fd))
    except OSError as error:
        pytest.skip(f"pidfd_getfd: {error.strerror}")
    yield fd
    os.close(fd)


def test_a_socket_that_was_closed_meanwhile_is_passed_over(pidfd: int) -> None:
    with socket.socket() as sock:
        number = sock.fileno()
        assert number in _sockets(os.getpid())
    assert not _widen(pidfd, number)
