"""How a run ended, by HTCondor's word and DAGMan's log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adon.demo.running import end_state
from condor_plugins.dagman import DagEnd
from monitors.status import NOT_STARTED, State


@pytest.mark.parametrize(
    ("end", "last", "state"),
    [
        ("success", State.DONE, "success"),
        ("success", State.FAILED, "failed"),  # pegasus-dagman leaves with 0
        ("success", State.REMOVED, "removed"),
        ("success", State.RUNNING, "failed"),  # DAGMan never wrote its end
        ("success", None, "failed"),
        ("failed", State.FAILED, "failed"),
        ("held", State.RUNNING, "held"),
        ("removed", State.REMOVED, "removed"),
    ],
)
def test_a_success_stands_in_both(end: str, last: State | None, state: str) -> None:
    status = None if last is None else replace(NOT_STARTED, state=last)
    assert end_state(DagEnd(end), status) == state
