"""What brokers believe of a switch goes by its stamp: no change may leave the stamp as it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.controllers.beliefs import Beliefs
from network_provisioner.controllers.board import Board
from network_provisioner.controllers.rules import (
    OWNER_SHIFT,
    STAMP_OWNER,
    TRANSIT_OWNER,
    Changes,
    FlowRule,
    is_stamp,
    make_cookie,
)


class Sent:
    """A board that keeps the stamps that were sent to it."""

    native = object()

    def __init__(self) -> None:
        self.stamps: list[int] = []

    def send(self, batches: Mapping[int, Changes], now: float) -> None:
        for batch in batches.values():
            self.stamps += [rule.cookie for rule in batch.add if is_stamp(rule)]


def change(number: int) -> Changes:
    cookie = make_cookie(TRANSIT_OWNER, str(number))
    return Changes(add=(FlowRule(1, 200, "10.0.0.1", "10.0.0.2", 1, cookie),))


@given(st.integers(0, 2**30 - 1), st.integers(2, 60))
def test_changes_within_one_epoch_have_stamps_of_their_own(epoch: int, times: int) -> None:
    board = Sent()
    beliefs = Beliefs(cast(Board, cast(Any, board)), lambda: 0.0)
    for number in range(times):
        beliefs.change(change(number), epoch)
    assert len(set(board.stamps)) == times
    assert {stamp >> OWNER_SHIFT for stamp in board.stamps} == {STAMP_OWNER}


@given(st.integers(0, 2**30 - 2))
def test_a_later_epoch_has_a_later_stamp(epoch: int) -> None:
    board = Sent()
    one = Beliefs(cast(Board, cast(Any, board)), lambda: 0.0)
    other = Beliefs(cast(Board, cast(Any, board)), lambda: 0.0)
    for _ in range(5):
        one.change(change(1), epoch)
    other.change(change(2), epoch + 1)
    assert max(board.stamps) == board.stamps[-1]
