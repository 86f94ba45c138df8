"""Waiting for what other processes and threads do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Of the time that is waited, what looking may take: where a look is a process of its own, more
# would keep from the machine what is waited for.
_LOOKING = 0.2


def until(look: Callable[[], T], what: str = "it to happen", timeout_s: float = 300.0) -> T:
    """What ``look`` finds, once that is anything. Raises AssertionError."""
    deadline = time.monotonic() + timeout_s
    began = time.monotonic()
    while not (result := look()):
        now = time.monotonic()
        assert now < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(min(max(0.1, (now - began) * (1 / _LOOKING - 1)), 2.0))
        began = time.monotonic()
    return result
