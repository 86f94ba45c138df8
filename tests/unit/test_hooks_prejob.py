"""Before a transfer: one request per site pair, never blocked, never failing, always on record."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hooks_world import WF_UUID, FakeBroker, journal, make_submit_dir, move

from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from monitors.workflows.planned.transferlist import SiteUrl, Transfer
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import (
    RequestAnswer,
    Service,
    Transit,
    TransitRequest,
    TransitState,
)
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import Effects
from network_provisioner.client.patience import Budget
from pegasus_hooks.prepost import prejob
from pegasus_hooks.prepost.prejob import TransferIdentity, identity_of

JOB = "stage_in_local_mu_0_0"
ID = f"{WF_UUID}:{JOB}:0:a-mu"
CONFIG = HookConfig("http://127.0.0.1:1", patience_s=5.0, template="soykb")


class World:
    """A broker, and clocks that move only in sleep."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.seconds = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds

    def effects(self) -> Effects:
        def monotonic() -> float:
            return self.seconds

        def now() -> float:
            return 1000.0 + self.seconds

        return Effects(self.broker, Budget(60.0), now, monotonic, self.sleep)


@pytest.fixture
def submit_dir(tmp_path: Path) -> Path:
    lists = {
        JOB: [move("f", "a", "mu", 100), move("g", "a", "mu", 50), move("h", "b", "mu")],
        "stage_in_remote_mu_0_0": [move("r", "mu", "mu", 9)],
    }
    return make_submit_dir(tmp_path / "run", lists, ["align_ID1"])


def decision(submit_dir: Path, job: str = JOB) -> dict[str, object]:
    return job_files.read_json(submit_dir / "00/00" / f"{job}.adon.json")


def pairs_of(submit_dir: Path, job: str = JOB) -> list[dict[str, object]]:
    pairs = decision(submit_dir, job).get("pairs", [])
    assert isinstance(pairs, list)
    return pairs


def run(submit_dir: Path, world: World, retry: int = 0, job: str = JOB) -> list[dict[str, object]]:
    assert prejob.run(PlannedFiles(submit_dir, job), retry, CONFIG, world.effects()) == 0
    return pairs_of(submit_dir, job)


def test_one_request_for_each_pair(submit_dir: Path) -> None:
    world = World(FakeBroker())
    first, second = run(submit_dir, world)
    requests = world.broker.asked
    assert [(r.id, r.src, r.dst, r.size_bytes) for r in requests] == [
        (ID, "a", "mu", 150),
        (f"{WF_UUID}:{JOB}:0:b-mu", "b", "mu", None),
    ]
    assert {(r.workflow, r.job, r.retry, r.template) for r in requests} == {
        (WF_UUID, JOB, 0, "soykb")
    }
    assert (first["state"], first["path"], first["granted_bps"]) == (
        "installed", ["a", "s1", "b"], 1e8,
    )  # fmt: skip
    assert second["files"] == 1
    assert (first["size_source"], second["size_source"]) == ("declared", "unknown")
    assert world.broker.calls == 1
    lines = journal(submit_dir)
    assert [(x["event"], x["hook"], x["id"]) for x in lines] == [
        ("decision", "pre", r.id) for r in requests
    ]


def test_a_url_that_cannot_be_read_names_no_host(tmp_path: Path) -> None:
    ends = (SiteUrl("a", "gsiftp://[2001:db8::1/f"),), (SiteUrl("mu", "gsiftp://dtn.mu/f"),)
    where = make_submit_dir(tmp_path / "run", {JOB: [Transfer("f", *ends, 100)]})
    world = World(FakeBroker())
    assert [pair["state"] for pair in run(where, world)] == ["installed"]
    assert [(r.src_host, r.dst_host) for r in world.broker.asked] == [("", "")]


@pytest.mark.parametrize("job", ["stage_in_remote_mu_0_0", "align_ID1"])
def test_jobs_that_need_no_path_ask_nothing(submit_dir: Path, job: str) -> None:
    world = World(FakeBroker())
    assert run(submit_dir, world, job=job) == []
    assert world.broker.asked == [] and journal(submit_dir) == []


def test_a_broker_that_is_away_costs_one_try_and_a_warning(submit_dir: Path) -> None:
    world = World(FakeBroker(BrokerError("no route to the broker")))
    pairs = run(submit_dir, world)
    assert [p["state"] for p in pairs] == ["unasked", "unasked"]
    warnings = [x["reason"] for x in journal(submit_dir) if x["event"] == "warning"]
    assert len(warnings) == 2
    assert all("no route to the broker" in str(w) for w in warnings)
    assert decision(submit_dir)["told"] is False  # which the watcher makes up for
    assert job_files.warnings(submit_dir)[0].startswith(f"{JOB}: a to mu: best effort")


def test_a_budget_ends_a_call_that_never_ends() -> None:
    budget = Budget(0.05)
    with pytest.raises(BrokerError, match=r"did not answer within 0\.05 s") as caught:
        budget.call(lambda: time.sleep(30))
    assert caught.value.code == "timeout"
    with pytest.raises(BrokerError):
        budget.call(lambda: None)  # used up: not even tried
    assert budget.left_s <= 0


def test_what_a_killed_hook_got_is_given_back_before_more_is_asked_for(submit_dir: Path) -> None:
    class Broker(FakeBroker):
        def request(self, request: TransitRequest) -> Transit:
            released_before.append(len(self.released))
            return super().request(request)

    released_before: list[int] = []
    world = World(Broker())
    run(submit_dir, world, retry=0)
    run(submit_dir, world, retry=1)
    assert released_before == [0, 0, 2, 2]


def test_whatever_round_a_killed_hook_was_given_is_given_back(submit_dir: Path) -> None:
    """It knew only the first id of each: the broker had numbered them on."""

    class Silent(FakeBroker):
        def ask(self, requests: Sequence[TransitRequest], /) -> list[RequestAnswer]:
            super().ask(requests)
            raise BrokerError("the answer got lost")

    broker = Silent()
    broker.ended = {ID, f"{ID}.2"}
    run(submit_dir, World(broker), retry=0)
    assert next(p["id"] for p in run(submit_dir, World(broker), retry=1)) != ID
    other = f"{WF_UUID}:{JOB}:0:b-mu"
    assert {r[0] for r in broker.released} == {ID, f"{ID}.2", f"{ID}.3", other}


def test_the_same_hook_run_twice_keeps_its_transits(submit_dir: Path) -> None:
    world = World(FakeBroker())
    before = [p["id"] for p in run(submit_dir, world)]
    assert [p["id"] for p in run(submit_dir, world)] == before
    assert world.broker.released == []


def test_a_rescue_dag_asks_under_a_new_id(submit_dir: Path) -> None:
    world = World(FakeBroker())
    run(submit_dir, world)
    world.broker.ended = {r.id for r in world.broker.asked}
    world.broker.released.clear()
    assert [p["id"] for p in run(submit_dir, world)] == [f"{ID}.2", f"{WF_UUID}:{JOB}:0:b-mu.2"]


def test_what_could_not_be_given_back_is_kept_for_the_next(submit_dir: Path) -> None:
    world = World(FakeBroker())
    run(submit_dir, world, retry=0)
    world.broker.refuses_release = BrokerError("gone")
    run(submit_dir, world, retry=1)
    assert decision(submit_dir)["left_over"] == [ID, f"{WF_UUID}:{JOB}:0:b-mu"]
    world.broker.refuses_release = None
    run(submit_dir, world, retry=2)
    assert len({r[0] for r in world.broker.released}) == 4
    assert decision(submit_dir)["left_over"] == []


def test_ids_are_on_disk_before_anything_is_asked(submit_dir: Path) -> None:
    class Killed(Exception):
        """Stands for kill -9 in the middle of the request."""

    class Broker(FakeBroker):
        def request(self, request: object) -> object:  # type: ignore[override]
            raise Killed

    with pytest.raises(Killed):
        run(submit_dir, World(Broker()))
    pairs = decision(submit_dir)["pairs"]
    assert isinstance(pairs, list)
    assert (pairs[0]["id"], pairs[0]["state"]) == (ID, "unasked")


def test_where_ids_cannot_be_on_disk_nothing_is_asked_for(
    submit_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(FakeBroker())
    run(submit_dir, world, retry=0)
    monkeypatch.setattr(job_files, "write_json", full)
    with pytest.raises(OSError, match="No space left"):
        prejob.run(PlannedFiles(submit_dir, JOB), 1, CONFIG, world.effects())
    assert len(world.broker.asked) == 2  # those of the first run, which are given back
    assert {r[0] for r in world.broker.released} == {r.id for r in world.broker.asked}
    assert [(r.src, r.retry) for r in world.broker.told] == [("a", 1), ("b", 1)]
    reason = "best effort: the submit directory cannot be written: No space left on device"
    assert {r.best_effort for r in world.broker.told} == {reason}


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_watcher_hears_of_the_workflow_before_the_broker(submit_dir: Path) -> None:
    heard: list[tuple[Path, str, int]] = []
    world = World(FakeBroker())

    def register(where: Path, workflow: str) -> None:
        heard.append((where, workflow, world.broker.calls))

    prejob.run(PlannedFiles(submit_dir, "align_ID1"), 0, CONFIG, world.effects(), register)
    assert heard == []
    prejob.run(PlannedFiles(submit_dir, JOB), 0, CONFIG, world.effects(), register)
    assert heard == [(submit_dir, WF_UUID, 0)]


def test_without_a_watcher_the_transfer_has_its_path(submit_dir: Path) -> None:
    world = World(FakeBroker())
    prejob.run(PlannedFiles(submit_dir, JOB), 0, CONFIG, world.effects(), full)
    assert [p["state"] for p in pairs_of(submit_dir)] == ["installed"] * 2
    assert "no watcher knows" in job_files.warnings(submit_dir)[0]


def defer(submit_dir: Path) -> None:
    with (submit_dir / "flow-0.dag").open("a") as dag:
        dag.write(f"SCRIPT DEFER 4 30 PRE {JOB} /opt/adon-pre $JOB $RETRY $MAX_RETRIES\n")


def test_dagman_asks_again_where_the_template_defers(submit_dir: Path) -> None:
    defer(submit_dir)
    broker = FakeBroker(TransitState.QUEUED)
    broker.service = Service(when_queued="defer", patience_s=100.0)
    config = HookConfig("http://127.0.0.1:1")
    world = World(broker)
    assert (
        prejob.run(PlannedFiles(submit_dir, JOB), 0, config, world.effects()) == prejob.DEFER_STATUS
    )
    assert world.seconds == 0 and broker.released == []
    assert [line["event"] for line in journal(submit_dir)] == ["deferred"] * 2
    assert decision(submit_dir)["told"] is True
    world.seconds += 30.0
    assert (
        prejob.run(PlannedFiles(submit_dir, JOB), 0, config, world.effects()) == prejob.DEFER_STATUS
    )
    assert decision(submit_dir)["since"] == 1000.0
    # The same ids are asked for, and in the end patience has counted from the first time.
    assert len({r.id for r in broker.asked}) == 2
    world.seconds += 80.0
    assert prejob.run(PlannedFiles(submit_dir, JOB), 0, config, world.effects()) == 0
    assert world.seconds == 110.0
    assert {p["state"] for p in pairs_of(submit_dir)} == {"best_effort"}
    assert {r[3] for r in broker.released} == {"gave_up"}


def test_a_deferred_job_that_gets_its_path_runs(submit_dir: Path) -> None:
    defer(submit_dir)
    broker = FakeBroker(
        TransitState.QUEUED, TransitState.QUEUED, TransitState.INSTALLED, TransitState.INSTALLED
    )
    broker.service = Service(when_queued="defer")
    world = World(broker)
    assert (
        prejob.run(PlannedFiles(submit_dir, JOB), 0, CONFIG, world.effects()) == prejob.DEFER_STATUS
    )
    world.seconds += 1.0
    assert prejob.run(PlannedFiles(submit_dir, JOB), 0, CONFIG, world.effects()) == 0
    assert {p["state"] for p in pairs_of(submit_dir)} == {"installed"}
    assert broker.released == []


def test_where_dagman_would_not_ask_again_the_hook_waits(submit_dir: Path) -> None:
    broker = FakeBroker(TransitState.QUEUED, TransitState.QUEUED, TransitState.INSTALLED)
    broker.service = Service(when_queued="defer")
    world = World(broker)
    assert prejob.run(PlannedFiles(submit_dir, JOB), 0, CONFIG, world.effects()) == 0
    assert world.seconds > 0 and {p["state"] for p in pairs_of(submit_dir)} == {"installed"}


@pytest.mark.parametrize(
    ("line", "defers"),
    [
        ("SCRIPT DEFER 4 30 PRE job /pre $JOB", True),
        ("  script  Defer 4\t5 pre job /pre", True),
        ("SCRIPT DEFER 3 30 PRE job /pre", False),
        ("SCRIPT DEFER 4 30 PRE job2 /pre", False),
        ("SCRIPT DEFER 4 30 POST job /post", False),
        ("SCRIPT PRE job /pre", False),
        ("# SCRIPT DEFER 4 30 PRE job /pre", False),
    ],
)
def test_whether_dagman_would_ask_again_stands_in_the_dag(
    tmp_path: Path, line: str, defers: bool
) -> None:
    (tmp_path / "braindump.yml").write_text('dag: "f.dag"\n')
    (tmp_path / "f.dag").write_text(f"JOB job job.sub\n{line}\n")
    assert PlannedFiles(tmp_path, "job").defers(4) is defers


def test_what_the_templates_want_is_on_record(submit_dir: Path) -> None:
    world = World(FakeBroker())
    world.broker.service = Service(template="soykb", version=3, streams=8)
    run(submit_dir, world)
    service = decision(submit_dir)["service"]
    assert isinstance(service, dict)
    assert (service["template"], service["version"], service["streams"]) == ("soykb", 3, 8)


# -- whose transfer it is -------------------------------------------------------------------------

DUMP = {"user": "ada", "app": "none", "dax_label": "soykb", "vogroup": "pegasus"}


@pytest.mark.parametrize(
    ("line", "project"),
    [
        ('+ProjectName = "SoyKB"', "SoyKB"),
        ('MY.ProjectName = "SoyKB"', "SoyKB"),
        ("accounting_group=group_cms.prod ", "group_cms.prod"),
        ('+projectname = "first"\naccounting_group = last', "last"),
        ('+Other = "x"\naccounting_group_user = eve', "fallback"),
        ("+ProjectName =", "fallback"),
    ],
)
def test_the_project_is_the_submit_files(line: str, project: str) -> None:
    text = f"universe = local\n{line}\nqueue\n"
    assert identity_of(DUMP, text, "fallback").project == project


def test_without_a_submit_file_the_rest_is_known() -> None:
    identity = identity_of(DUMP, "", None)
    assert identity == TransferIdentity(user="ada", experiment="soykb", application="soykb")


def test_an_app_is_the_experiment() -> None:
    identity = identity_of({**DUMP, "app": "resequencing"}, "", None)
    assert (identity.experiment, identity.application) == ("resequencing", "soykb")


def test_names_that_the_broker_would_not_take_are_cut() -> None:
    project = identity_of(DUMP, f'+ProjectName = "a\x07b\ufffd{"c" * 500}"\n', None).project
    assert project.isprintable() and project.startswith("ab") and len(project) == 200


def test_every_request_says_whose_it_is(tmp_path: Path) -> None:
    job = "stage_in_local_mu_0_0"
    where = make_submit_dir(tmp_path / "run", {job: [move("f", "a", "mu", 10**9)]})
    with (where / "braindump.yml").open("a") as dump:
        dump.write('dax_label: "soykb"\napp: "none"\n')
    (where / "00/00" / f"{job}.sub").write_text('+ProjectName = "SoyKB"\nqueue\n')
    broker = FakeBroker()
    config = HookConfig("http://127.0.0.1:1", template="soykb")
    prejob.run(PlannedFiles(where, job), 0, config, Effects(broker, Budget(60.0)))
    request = broker.asked[0]
    assert (request.user, request.project, request.experiment) == ("u", "SoyKB", "soykb")
    assert request.application == "soykb"
