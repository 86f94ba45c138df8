"""Hooks that are killed anywhere, brokers that fail anywhere: in the end nothing is held."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from broker_model import BrokerModel, Killed
from hooks_world import make_submit_dir, move
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from network_provisioner.base.model import TransitState
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import Effects
from network_provisioner.client.patience import Budget
from pegasus_hooks.prepost import postjob, prejob

JOB = "stage_in_local_mu_0_0"
CONFIG = HookConfig("http://127.0.0.1:1", patience_s=1.0)


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
        broker = BrokerModel()
        write = job_files.write_json

        def written(path: Path, data: object) -> None:
            with broker.step():
                write(path, data)

        patch.setattr(job_files, "write_json", written)

        def run(hook: str, retry: int) -> None:
            seconds = [0.0]

            def sleep(some: float) -> None:
                seconds[0] += some

            effects = Effects(
                broker, Budget(1e9), lambda: 1.0, lambda: seconds[0], sleep
            )  # fmt: skip
            if hook == "pre":
                prejob.run(PlannedFiles(where, JOB), retry, CONFIG, effects)
            else:
                postjob.run(PlannedFiles(where, JOB), retry, 0, CONFIG, effects)

        for hook, retry, fates, state in runs:
            broker.fate, broker.state = iter(fates), state
            with suppress(Killed):
                run(hook, retry)
        broker.fate, broker.state = iter(()), TransitState.INSTALLED
        run("pre", last)
        # What the job has now is all that is held: two pairs, and nothing of the earlier runs.
        held = broker.live()
        assert len(held) == 2 and all(f":{JOB}:{last}:" in name for name in held)
        run("post", last)
        assert broker.live() == []
