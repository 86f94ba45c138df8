"""What the two provisioning jobs do: asked for once, given back once, and nothing fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hooks_world import WF_UUID, FakeBroker, journal, make_submit_dir, write_config
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.workflows.planned import job_files
from network_provisioner.base.errors import AdonError, BrokerError, InputError
from network_provisioner.client.hookconfig import HookConfig
from pegasus_hooks.provisioning import running
from pegasus_hooks.provisioning.running import BrokerSession, JobContext, RunningWorkflow, place_of
from pegasus_hooks.provisioning.step import PathNeed, ProvisioningStep, to_arguments

NEEDS = (PathNeed("local", "mu", 10**9), PathNeed("mu", "local", None))
STEP = ProvisioningStep(3, 20, 2, 512, 10**9, 600, NEEDS, "/h.json", "/adon.yml")
IDS = [f"{WF_UUID}:provision:3:local-mu", f"{WF_UUID}:provision:3:mu-local"]
JOBS = ["provision_before_level_3", "release_after_level_3"]


class FakePool:
    """Takes the words of ``adon pool``."""

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble
        self.calls: list[list[str]] = []

    def __call__(self, words: Sequence[str]) -> str:
        self.calls.append(list(words))
        if self.trouble:
            raise AdonError(self.trouble)
        return "it is on its way"


def world(submit: Path, broker: FakeBroker, pool: FakePool | None = None) -> JobContext:
    facts = job_files.braindump(submit)
    network = BrokerSession(HookConfig("http://127.0.0.1:1", timeout_s=60.0), broker)
    return JobContext(
        RunningWorkflow(submit, facts["wf_uuid"], facts, 100.0), pool or FakePool(), network
    )


@pytest.fixture
def submit(tmp_path: Path) -> Path:
    return make_submit_dir(tmp_path / "run", {}, JOBS)


def decision(submit: Path) -> dict[str, object]:
    return job_files.read_json(submit / "00/00" / f"{JOBS[1]}.adon.json")


def test_paths_and_slots_are_asked_for_in_one_call_each(submit: Path) -> None:
    broker, pool = FakeBroker(), FakePool()
    running.provision(STEP, world(submit, broker, pool))
    assert broker.calls == 1
    assert [(r.id, r.src, r.dst, r.size_bytes, r.lease_s) for r in broker.asked] == [
        (IDS[0], "local", "mu", 10**9, 600.0), (IDS[1], "mu", "local", None, 600.0),
    ]  # fmt: skip
    (words,) = pool.calls
    assert " ".join(words) == (
        f"enlarge --config /adon.yml {WF_UUID}:level3 --slots 20 --cores 2 --memory-mb 512 "
        "--bytes 1000000000 --lease 600"
    )
    assert [line["event"] for line in journal(submit)] == ["decision", "decision", "pool"]


def test_the_ids_are_on_disk_before_anything_is_asked(submit: Path) -> None:
    seen = []

    class Looking(FakeBroker):
        def ask(self, requests, /):  # type: ignore[no-untyped-def]
            seen.append(decision(submit)["pairs"])
            return super().ask(requests)

    running.provision(STEP, world(submit, Looking()))
    assert [(pair["id"], pair["state"]) for pair in seen[0]] == [(i, "unasked") for i in IDS]  # type: ignore[attr-defined]


def test_everything_is_given_back(submit: Path) -> None:
    broker, pool = FakeBroker(), FakePool()
    running.provision(STEP, world(submit, broker, pool))
    running.release(STEP, world(submit, broker, pool))
    assert [name for name, *_ in broker.released] == IDS
    assert pool.calls[1] == ["shrink", "--config", "/adon.yml", f"{WF_UUID}:level3"]
    assert decision(submit)["given_back"] is True
    running.release(STEP, world(submit, broker, pool))
    assert len(broker.released) == 2


def test_what_a_former_run_ended_is_given_under_another_id_and_given_back(submit: Path) -> None:
    broker = FakeBroker()
    broker.ended = {IDS[0]}
    running.provision(STEP, world(submit, broker))
    running.release(STEP, world(submit, broker))
    assert [name for name, *_ in broker.released] == [f"{IDS[0]}.2", IDS[1]]


@settings(max_examples=15)
@given(st.lists(st.sampled_from(["provision", "release"]), max_size=6))
def test_in_any_order_as_often_as_you_like(acts: list[str]) -> None:
    from tempfile import TemporaryDirectory  # noqa: PLC0415

    with TemporaryDirectory() as folder:
        submit = make_submit_dir(Path(folder) / "run", {}, JOBS)
        broker = FakeBroker()
        for act in [*acts, "release"]:
            getattr(running, act)(STEP, world(submit, broker))
        request_ids = {r.id for r in broker.asked}
        assert request_ids <= {name for name, *_ in broker.released}


@pytest.mark.parametrize("silent", [True, False])
def test_a_broker_that_is_away_costs_a_warning(submit: Path, silent: bool) -> None:
    away = BrokerError("nobody there", "timeout" if silent else "unreachable")
    broker, pool = FakeBroker(), FakePool()
    broker.states = [away]
    running.provision(STEP, world(submit, broker, pool))
    assert len(pool.calls) == 1
    said = [line["reason"] for line in journal(submit) if line["event"] == "warning"]
    assert said == ["paths: best effort: nobody there"]
    assert {pair["state"] for pair in decision(submit)["pairs"]} == {"unasked"}  # type: ignore[attr-defined]


def test_what_was_never_answered_for_is_given_back_all_the_same(submit: Path) -> None:
    broker = FakeBroker(BrokerError("late", "timeout"))
    running.provision(STEP, world(submit, broker))
    running.release(STEP, world(submit, broker))
    assert [name for name, *_ in broker.released] == IDS


def test_a_refused_path_is_told_and_the_other_kept(submit: Path) -> None:
    broker = FakeBroker()
    broker.refuses = {"mu": BrokerError("no site 'mu'", "unknown_site")}
    running.provision(STEP, world(submit, broker))
    decisions = [line for line in journal(submit) if line["event"] == "decision"]
    assert [(line["state"], line["reason"]) for line in decisions] == [
        ("best_effort", "no site 'mu'"), ("installed", "because"),
    ]  # fmt: skip


def test_a_pool_that_cannot_grow_costs_a_warning(submit: Path) -> None:
    pool = FakePool("the cloud is full")
    running.provision(STEP, world(submit, FakeBroker(), pool))
    running.release(STEP, world(submit, FakeBroker(), pool))
    said = [line["reason"] for line in journal(submit) if line["event"] == "warning"]
    assert said == ["pool: the cloud is full"] * 2


def test_where_nothing_can_be_written_nothing_is_asked_for(tmp_path: Path) -> None:
    submit = make_submit_dir(tmp_path / "run", {}, JOBS)
    (submit / "00/00" / f".{JOBS[1]}.adon.json").mkdir()
    (submit / "flow-0.dag").unlink()
    broker, pool = FakeBroker(), FakePool()
    running.provision(STEP, world(submit, broker, pool))
    assert (broker.asked, len(pool.calls)) == ([], 1)
    assert journal(submit)[-1]["reason"].startswith("paths: ")


def test_what_the_broker_does_not_take_back_is_left_to_its_lease(submit: Path) -> None:
    broker = FakeBroker()
    running.provision(STEP, world(submit, broker))
    broker.refuses_release = BrokerError("nobody there", "unreachable")
    running.release(STEP, world(submit, broker))
    assert journal(submit)[-1]["reason"] == f"{IDS[1]}: ends with its lease: nobody there"
    assert decision(submit)["given_back"] is False


def test_the_place_is_found_by_pegasuss_word_or_htcondors(submit: Path, tmp_path: Path) -> None:
    place = place_of({"_PEGASUS_WF_SUBMIT_DIR": str(submit)}, 5.0)
    assert (place.submit_dir, place.workflow, place.at) == (submit, WF_UUID, 5.0)
    ad = tmp_path / "ad"
    ad.write_text(f'ClusterId = 3\nUserLog = "{submit}/flow-0.log"\n')
    assert place_of({"_CONDOR_JOB_AD": str(ad)}, 5.0) == place
    with pytest.raises(InputError, match="expected to be run by Pegasus"):
        place_of({}, 5.0)


@pytest.mark.parametrize("verb", ["provision", "release"])
def test_the_program_succeeds_whatever_happens(verb: str, tmp_path: Path, submit: Path) -> None:
    script = Path(running.__file__).with_name("job.py")
    hooks = write_config(tmp_path / "h.json", "http://127.0.0.1:9")
    step = ProvisioningStep(3, 2, paths=NEEDS, hooks=str(hooks), pool=str(tmp_path / "none.yml"))
    cases = [
        ([], {}), (["colour"], {}), (to_arguments(verb, step), {}),
        (to_arguments(verb, step), {"_PEGASUS_WF_SUBMIT_DIR": str(submit)}),
    ]  # fmt: skip
    for words, environ in cases:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(script), *words],
            env={"PATH": "/usr/bin:/bin", **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0
        assert "Traceback" not in done.stderr
        assert done.stderr.startswith("adon ")
    reasons = [line["reason"] for line in journal(submit) if line["event"] == "warning"]
    assert any("none.yml" in reason for reason in reasons)
    assert any(reason.startswith(("paths: best effort", IDS[0])) for reason in reasons)
