"""What the watcher hands over when it gives back, and what it writes down when it asks again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hooks_world import WF_UUID, FakeBroker, make_submit_dir, move

from monitors.planned import submitdir
from network_provisioner.base.hookconfig import HookConfig
from network_provisioner.base.path_requests import UNASKED, Effects
from network_provisioner.base.patience import Budget
from network_provisioner.client import Asked
from network_provisioner.errors import BrokerError
from network_provisioner.model import Service, Transit, TransitRequest, TransitState
from pegasus_hooks.prepost import prejob
from pegasus_hooks.watch import jobfiles
from pegasus_hooks.watch.duties import Later
from pegasus_hooks.watch.events import Watched
from pegasus_hooks.watch.papers import Pair, Papers
from pegasus_hooks.watch.returns import AskAgain, GiveBack, Moved, Tell

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

    def ask(self, requests: object, /) -> list[Asked]:
        assert isinstance(requests, list)
        self.told += requests
        return [Asked(self.transit(f"{r.id}.2", self.states[0], r), Service()) for r in requests]

    def list(self, state: str | None = None, workflow: str | None = None) -> list[Transit]:
        return [t for t in self.known.values() if t.state == state]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = make_submit_dir(tmp_path / "run", {JOB: [move("f", "a", "b", 500)]})
    effects = Effects(FakeBroker(), Budget(60.0), now=lambda: 0.0)
    prejob.run(run, JOB, 0, CONFIG, effects)
    return run


def watched(run: Path) -> Watched:
    return Watched(WF_UUID, run, run / "flow-0.dag", CONFIG)


def papers_of(run: Path) -> Papers:
    return Papers.read(run / "00/00" / f"{JOB}.adon.json")


def live(transit_id: str) -> Transit:
    return Transit(transit_id, "a", "b", TransitState.INSTALLED)


def give_back(run: Path, papers: Papers, pair: Pair, why: str = "") -> GiveBack:
    at = watched(run)
    return GiveBack(
        at, papers, pair, "exit 1", lambda p, q: jobfiles.measure(at, p, q), lambda: 9.0, why
    )


@pytest.mark.parametrize(("success", "moved"), [("True", (500, 2.0, 0)), ("False", (0, 0.0, 1))])
def test_what_the_transfer_moved_is_handed_over(
    run: Path, success: str, moved: tuple[int, float, int]
) -> None:
    (run / "00/00" / f"{JOB}.multipart/1000-transfer").write_text(RECORD.format(success=success))
    papers = papers_of(run)
    broker = Broker(live(BASE))
    (line,) = give_back(run, papers, papers.pairs[0]).do(broker)
    assert broker.released == [(BASE, *moved[:2], "exit 1")]
    assert broker.used[0]["retries"] == moved[2]
    assert (line["hook"], line["id"], line["at"]) == ("watch", BASE, 9.0)


def test_nothing_is_measured_of_another_run_or_a_damaged_directory(run: Path) -> None:
    papers = papers_of(run)
    other = Papers(papers.file, JOB, 7, 1.0, papers.pairs)
    assert jobfiles.measure(watched(run), other, papers.pairs[0]) == Moved()
    (run / "00/00" / f"{JOB}.in").write_text("[{")
    assert jobfiles.measure(watched(run), papers, papers.pairs[0]) == Moved()


def test_what_ended_is_not_given_back_again(run: Path) -> None:
    papers = papers_of(run)
    ended = Transit(BASE, "a", "b", TransitState.EXPIRED)
    broker = Broker(ended)
    assert give_back(run, papers, papers.pairs[0]).do(broker) == []
    assert broker.released == []


def test_a_hook_that_was_killed_before_it_asked_is_on_record(run: Path) -> None:
    papers = papers_of(run)
    pair = Pair(BASE, "a", "b", UNASKED)
    broker = Broker()
    duty = give_back(run, papers, pair, why="killed")
    with pytest.raises(Later):  # its request may still be on its way
        duty.do(broker)
    (line,) = duty.do(broker)
    assert (line["event"], line["reason"]) == ("told", "killed")
    (request,) = broker.told
    assert (request.id, request.best_effort, request.job) == (BASE, "killed", JOB)


def test_a_reason_that_is_refused_is_on_record_here(run: Path) -> None:
    papers = papers_of(run)
    pair = Pair(BASE, "a", "b", UNASKED, "no broker")

    class Refusing(Broker):
        def ask(self, requests: object, /) -> list[Asked]:
            return [Asked(None, Service(), BrokerError("unknown site", "unknown_site"))]

    (line,) = Tell(watched(run), papers, pair, lambda: 9.0).do(Refusing())
    assert (line["event"], line["reason"]) == ("untold", "unknown site")


def test_asking_again_is_written_down_for_post(run: Path) -> None:
    papers, at = papers_of(run), watched(run)
    broker = Broker(Transit(BASE, "a", "b", TransitState.RELEASED))
    got: list[Papers] = []
    duty = AskAgain(
        at, papers, lambda p: jobfiles.requests_of(at, p), lambda: True, got.append, lambda: 9.0
    )
    (line,) = duty.do(broker)
    assert (line["event"], line["id"], line["state"]) == ("asked_again", f"{BASE}.2", "installed")
    (request,) = broker.told
    assert (request.id, request.size_bytes, request.project) == (BASE, 500, "genes")
    assert got[0].ids == papers_of(run).ids == (f"{BASE}.2",)
    assert [transit_id for transit_id, _ in broker.renewed] == [f"{BASE}.2"]
    decision = submitdir.read_json(papers.file)
    assert decision["pairs"][0]["path"] == ["a", "s1", "b"]
    assert decision["pairs"][0]["files"] == 1


def test_a_later_pre_is_not_disturbed(run: Path) -> None:
    papers, at = papers_of(run), watched(run)
    submitdir.write_json(papers.file, {"retry": 1, "at": 77.0, "pairs": [], "given_back": False})
    duty = AskAgain(at, papers, lambda _p: [], lambda: True, lambda _p: None, lambda: 9.0)
    duty.do(Broker())
    assert submitdir.read_json(papers.file)["retry"] == 1
    assert AskAgain(at, papers, lambda _p: [], lambda: False, lambda _p: None, lambda: 9.0).do(
        Broker()
    ) == []  # fmt: skip
