"""Hooks that are killed anywhere, brokers that fail anywhere: in the end nothing is held."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hooks_world import make_submit_dir, move
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monitors.planned import submitdir
from network_provisioner.base.hookconfig import HookConfig
from network_provisioner.base.path_requests import Effects
from network_provisioner.base.patience import Budget
from network_provisioner.client import Asked
from network_provisioner.errors import BrokerError
from network_provisioner.model import ENDED, Service, Transit, TransitRequest, TransitState
from network_provisioner.request_ids import latest, numbered
from pegasus_hooks.prepost import postjob, prejob

JOB = "stage_in_local_mu_0_0"
CONFIG = HookConfig("http://127.0.0.1:1", patience_s=1.0)
HELD = frozenset(TransitState) - ENDED


class Killed(BaseException):
    """kill -9, as far as a test can have it: nothing of the hook runs after it."""


@dataclass
class Model:
    """A broker of its own word: an id that has ended is asked for under the next round. ``fate``
    says of each call, and each file written, what happens: ``ok``; ``before`` it the hook is
    killed, or ``after`` it; ``refused`` or ``lost``: the broker's answer is an error, before it did
    anything or after."""

    known: dict[str, Transit] = field(default_factory=dict)
    fate: Iterator[str] = field(default_factory=lambda: iter(()))
    state: TransitState = TransitState.INSTALLED

    @contextmanager
    def step(self, at_broker: bool = True) -> Iterator[None]:
        fate = next(self.fate, "ok")
        if fate == "before":
            raise Killed
        if at_broker and fate == "refused":
            raise BrokerError("not now", "store_unavailable")
        yield
        if fate == "after":
            raise Killed
        if at_broker and fate == "lost":
            raise BrokerError("the answer was lost", "timeout")

    def ask(self, requests: Sequence[TransitRequest], /) -> list[Asked]:
        with self.step():
            return [Asked(self._given(request), Service()) for request in requests]

    def _given(self, request: TransitRequest) -> Transit:
        number, found = latest(request.id, self.known.get)
        name = numbered(request.id, number)
        if found is None:
            found = Transit(name, request.src, request.dst, self.state, lease_until=1e18)
            self.known[name] = found
        return self._seen(found)

    def _seen(self, transit: Transit) -> Transit:
        if transit.state is TransitState.QUEUED:  # there may be room by now
            transit.state = self.state
        return transit.copy()

    def get(self, transit_id: str, /) -> Transit:
        with self.step():
            return self._seen(self.known[transit_id])

    def release(
        self,
        transit_id: str,
        bytes_moved: int = 0,
        seconds: float = 0.0,
        outcome: str = "",
        **used: int,
    ) -> Transit:
        with self.step():
            if transit_id not in self.known:
                raise BrokerError("no such transit", "unknown_transit")
            transit = self.known[transit_id]
            if transit.state not in ENDED:
                transit.state = TransitState.RELEASED
            return transit.copy()

    def renew(self, transit_id: str, lease_s: float) -> Transit:
        with self.step():
            return self.known[transit_id].copy()

    def held(self) -> set[str]:
        return {name for name, transit in self.known.items() if transit.state in HELD}


FATES = st.lists(st.sampled_from(["ok", "ok", "ok", "before", "after", "refused", "lost"]))
STATES = st.sampled_from([TransitState.INSTALLED, TransitState.QUEUED])
RUNS = st.lists(st.tuples(st.sampled_from(["pre", "post"]), st.integers(0, 2), FATES, STATES))


NOW = TransitState.INSTALLED
ONCE = [("pre", 0, ["ok"], NOW), ("post", 0, ["ok"], NOW)]  # the same again gets other ids


@settings(max_examples=30)
@given(RUNS, st.integers(0, 3))
@example([*ONCE, ("pre", 0, ["ok", "after"], NOW)], 1)
@example([*ONCE, ("pre", 0, ["ok", "lost"], NOW), ONCE[1]], 1)
def test_after_a_pre_and_a_post_that_went_well_nothing_is_held(
    runs: list[tuple[str, int, list[str], TransitState]], last: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        lists = {JOB: [move("f", "a", "mu", 100), move("g", "b", "mu", 50)]}
        where = make_submit_dir(Path(folder) / "run", lists)
        broker = Model()
        write = submitdir.write_json

        def written(path: Path, data: object) -> None:
            with broker.step(at_broker=False):
                write(path, data)

        patch.setattr(submitdir, "write_json", written)

        def run(hook: str, retry: int) -> None:
            seconds = [0.0]

            def sleep(some: float) -> None:
                seconds[0] += some

            effects = Effects(
                broker, Budget(1e9), lambda: 1.0, lambda: seconds[0], sleep
            )  # fmt: skip
            if hook == "pre":
                prejob.run(where, JOB, retry, CONFIG, effects)
            else:
                postjob.run(where, JOB, retry, 0, CONFIG, effects)

        for hook, retry, fates, state in runs:
            broker.fate, broker.state = iter(fates), state
            with suppress(Killed):
                run(hook, retry)
        broker.fate, broker.state = iter(()), TransitState.INSTALLED
        run("pre", last)
        # What the job has now is all that is held: two pairs, and nothing of the earlier runs.
        held = broker.held()
        assert len(held) == 2 and all(f":{JOB}:{last}:" in name for name in held)
        run("post", last)
        assert broker.held() == set()
