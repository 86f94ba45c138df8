"""What the watcher hands over when it gives back, and what it writes down when it asks again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hooks_world import WF_UUID, FakeBroker, make_submit_dir, move
from made_transit import made_transit

from monitors.watcher.actions import GiveBack, RequestAgain, Sweep, Tell, TransferResult, Watched
from monitors.watcher.decision_file import DecisionFile, Pair
from monitors.watcher.pending import Later
from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import (
    RequestAnswer,
    Service,
    Transit,
    TransitRequest,
    TransitState,
)
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import UNASKED, Effects
from network_provisioner.client.patience import Budget
from pegasus_hooks.prepost import prejob, watched_jobs

JOB = "stage_inter_local_sort_ID2_0"
BASE = f"{WF_UUID}:{JOB}:0:a-b"
CONFIG = HookConfig("http://127.0.0.1:1", project="genes")
RECORD = """- transfer_attempts:
  - src_url: "gsiftp://a/f"
    src_label: "a"
    dst_url: "gsiftp://b/f"
    dst_label: "b"
    success: {success}
    start: 1000
    duration: 2.0
    lfn: "f"
"""


class Broker(FakeBroker):
    """Knows transits by id, besides."""

    def __init__(self, *known: Transit) -> None:
        super().__init__()
        self.known = {transit.id: transit for transit in known}
        self.told: list[TransitRequest] = []

    def get(self, transit_id: str, /) -> Transit:
        if transit_id not in self.known:
            raise BrokerError("who?", "unknown_transit")
        return self.known[transit_id]

    def ask(self, requests: object, /) -> list[RequestAnswer]:
        assert isinstance(requests, list)
        self.told += requests
        return [
            RequestAnswer(self.transit(f"{r.id}.2", self.states[0], r), Service()) for r in requests
        ]

    def list(self, state: str | None = None, workflow: str | None = None) -> list[Transit]:
        mine = (t for t in self.known.values() if workflow in (None, t.request.workflow))
        return [t for t in mine if t.state == state]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = make_submit_dir(tmp_path / "run", {JOB: [move("f", "a", "b", 500)]})
    effects = Effects(FakeBroker(), Budget(60.0), now=lambda: 0.0)
    prejob.run(PlannedFiles(run, JOB), 0, CONFIG, effects)
    return run


def watched(run: Path) -> Watched:
    return Watched(WF_UUID, run, CONFIG)


def decision_of(run: Path) -> DecisionFile:
    return DecisionFile.read(run / "00/00" / f"{JOB}.adon.json")


def live(transit_id: str) -> Transit:
    return made_transit(transit_id, "a", "b", TransitState.INSTALLED)


class Journal(list[dict[str, Any]]):
    """What an action records."""

    def __call__(self, event: str, values: dict[str, Any], /) -> None:
        self.append({"event": event, **values})


def give_back(run: Path, journal: Journal, pair: Pair, why: str = "") -> GiveBack:
    return GiveBack(watched(run), journal, decision_of(run), pair, "exit 1", watched_jobs, why)


@pytest.mark.parametrize(("success", "moved"), [("True", (500, 2.0, 0)), ("False", (0, 0.0, 1))])
def test_what_the_transfer_moved_is_handed_over(
    run: Path, success: str, moved: tuple[int, float, int]
) -> None:
    (run / "00/00" / f"{JOB}.multipart/1000-transfer").write_text(RECORD.format(success=success))
    decision = decision_of(run)
    broker = Broker(live(BASE))
    journal = Journal()
    give_back(run, journal, decision.pairs[0]).do(broker)
    (line,) = journal
    assert broker.released == [(BASE, *moved[:2], "exit 1")]
    assert broker.used[0]["retries"] == moved[2]
    assert (line["event"], line["id"], line["outcome"]) == ("given_back", BASE, "exit 1")


def test_nothing_is_measured_of_another_run_or_a_damaged_directory(run: Path) -> None:
    decision = decision_of(run)
    other = DecisionFile(decision.file, JOB, 7, 1.0, decision.pairs)
    assert watched_jobs.measure(watched(run), other, decision.pairs[0]) == TransferResult()
    (run / "00/00" / f"{JOB}.in").write_text("[{")
    assert watched_jobs.measure(watched(run), decision, decision.pairs[0]) == TransferResult()


def test_what_ended_is_not_given_back_again(run: Path) -> None:
    decision = decision_of(run)
    ended = made_transit(BASE, "a", "b", TransitState.EXPIRED)
    broker = Broker(ended)
    give_back(run, Journal(), decision.pairs[0]).do(broker)
    assert broker.released == []


@pytest.mark.parametrize("wanted", [True, False])
def test_what_is_swept_up_is_the_workflows_own_while_it_has_ended(run: Path, wanted: bool) -> None:
    broker = Broker(
        made_transit("mine", "a", "b", TransitState.INSTALLED, workflow=WF_UUID),
        made_transit("waits", "a", "b", TransitState.QUEUED, workflow=WF_UUID),
        made_transit("over", "a", "b", TransitState.RELEASED, workflow=WF_UUID),
        made_transit("theirs", "a", "b", TransitState.INSTALLED, workflow="another"),
    )
    Sweep(watched(run), Journal(), "workflow ended", lambda: wanted).do(broker)
    released = {(name, outcome) for name, *_, outcome in broker.released}
    swept = {("mine", "workflow ended"), ("waits", "workflow ended")}
    assert released == (swept if wanted else set())


def test_what_a_later_pre_has_is_not_given_back(run: Path) -> None:
    """As after a rescue, where retries count from 0 again and ids come back."""
    action = give_back(run, Journal(), decision_of(run).pairs[0])
    later = Effects(FakeBroker(), Budget(60.0), now=lambda: 100.0)
    prejob.run(PlannedFiles(run, JOB), 0, CONFIG, later)
    broker = Broker(live(BASE))
    action.do(broker)
    assert broker.released == []


@pytest.mark.parametrize("state", [TransitState.EXPIRED, TransitState.BEST_EFFORT])
def test_what_was_moved_is_told_also_where_nothing_is_held_any_more(
    run: Path, state: TransitState
) -> None:
    (run / "00/00" / f"{JOB}.multipart/1000-transfer").write_text(RECORD.format(success="True"))
    pair = decision_of(run).pairs[0]
    broker = Broker(made_transit(BASE, "a", "b", state))
    give_back(run, Journal(), pair).do(broker)
    assert broker.released == [(BASE, 500, 2.0, "exit 1")]
    late_broker = Broker(made_transit(BASE, "a", "b", TransitState.EXPIRED, bytes=500, seconds=2.0))
    give_back(run, Journal(), pair).do(late_broker)
    # It changes nothing, but fails where it is not kept.
    assert late_broker.released == [(BASE, 0, 0.0, "")]


def test_a_hook_that_was_killed_before_it_asked_is_on_record(run: Path) -> None:
    broker, journal = Broker(), Journal()
    action = give_back(run, journal, Pair(BASE, "a", "b", UNASKED), why="killed")
    with pytest.raises(Later):  # its request may still be on its way
        action.do(broker)
    action.do(broker)
    (line,) = journal
    assert (line["event"], line["reason"]) == ("told", "killed")
    (request,) = broker.told
    assert (request.id, request.best_effort, request.job) == (BASE, "killed", JOB)


def test_what_is_told_later_has_its_owner(run: Path) -> None:
    broker, effects = FakeBroker(BrokerError("away")), Effects(FakeBroker(), Budget(60.0))
    with (run / "braindump.yml").open("a") as dump:
        dump.write('dax_label: "soykb"\n')
    prejob.run(PlannedFiles(run, JOB), 1, CONFIG, replace(effects, broker=broker))
    (request,) = broker.asked
    decision, back = decision_of(run), Broker()
    Tell(watched(run), Journal(), decision, decision.pairs[0]).do(back)
    (report,) = back.told
    assert report.best_effort
    # Nothing is put on switches for it: which hosts talk matters no more.
    assert report == replace(request, best_effort=report.best_effort, src_host="", dst_host="")
    assert (report.user, report.project, report.application) == ("u", "genes", "soykb")


def test_a_reason_that_is_refused_is_on_record_here(run: Path) -> None:
    decision = decision_of(run)
    pair = Pair(BASE, "a", "b", UNASKED, "no broker")

    class Refusing(Broker):
        def ask(self, requests: object, /) -> list[RequestAnswer]:
            return [RequestAnswer(None, Service(), BrokerError("unknown site", "unknown_site"))]

    journal = Journal()
    Tell(watched(run), journal, decision, pair).do(Refusing())
    (line,) = journal
    assert (line["event"], line["reason"]) == ("untold", "unknown site")


def test_asking_again_is_written_down_for_post(run: Path) -> None:
    decision, at = decision_of(run), watched(run)
    broker = Broker(made_transit(BASE, "a", "b", TransitState.RELEASED))
    got: list[DecisionFile] = []
    journal = Journal()
    RequestAgain(at, journal, decision, watched_jobs, lambda: True, got.append).do(broker)
    (line,) = journal
    assert (line["event"], line["id"], line["state"]) == ("asked_again", f"{BASE}.2", "installed")
    (request,) = broker.told
    assert (request.id, request.size_bytes, request.project) == (BASE, 500, "genes")
    assert got[0].ids == decision_of(run).ids == (f"{BASE}.2",)
    assert [transit_id for transit_id, _ in broker.renewed] == [f"{BASE}.2"]
    data = job_files.read_json(decision.file)
    assert data["pairs"][0]["path"] == ["a", "s1", "b"]
    assert data["pairs"][0]["files"] == 1


def test_a_later_pre_is_not_disturbed(run: Path) -> None:
    decision, at = decision_of(run), watched(run)
    job_files.write_json(decision.file, {"retry": 1, "at": 77.0, "pairs": [], "given_back": False})
    RequestAgain(at, Journal(), decision, watched_jobs, lambda: True, lambda _d: None).do(Broker())
    assert job_files.read_json(decision.file)["retry"] == 1
    broker = Broker()
    RequestAgain(at, Journal(), decision, watched_jobs, lambda: False, lambda _d: None).do(broker)
    assert broker.told == []
