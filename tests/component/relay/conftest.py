"""Tests of real agents between two hosts, which run in a box: ``test_relay.py`` runs this folder
inside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from relay_rig import RelayRig, relays

from adon.machine import box

collect_ignore_glob = [] if box.inside() else ["test_*.py"]


@pytest.fixture
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayRig]:
    with relays(tmp_path_factory.mktemp("relays")) as made:
        yield made
