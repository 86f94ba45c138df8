"""/v1/workflows: Figures 13 to 15 over HTTP, and the remote trigger."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from anyio import to_thread
from api_rig import bearer, books, error, keyring
from broker_rig import Clock, Rig, demo_network
from fastapi.testclient import TestClient
from generated import any_json, shared_fixtures
from hypothesis import given, settings
from hypothesis import strategies as st
from made_transit import made_transit
from monitor_files import START, Submitted, append, starting, table
from test_api_answers import EXAMPLE, part_of
from workflow_world import T0, UUID, example, job, placement, status, transfer, workflow

from monitors.api import archive as archive_api
from monitors.api import workflows
from monitors.api.visible import Visible
from monitors.archive.archive import Archive, ArchiveError, Measurement
from monitors.rules import Rules
from monitors.workflows.follower import Follower
from monitors.workflows.logs.status import WorkflowState
from monitors.workflows.overview import KnownWorkflows
from monitors.workflows.planned.submit_dir import SubmitDir
from monitors.workflows.service import KIND, Followers, Refresher, answer_id
from network_provisioner.access import ANYBODY, Keyring
from network_provisioner.api import create_app
from network_provisioner.base.errors import InputError
from network_provisioner.base.model import Transit, TransitState

DOCS = Path(__file__).resolve().parents[2] / "docs/api-monitoring.md"
STUCK_AFTER_S = 1800.0


class Web:
    """The routes around an archive in memory."""

    def __init__(self, tmp_path: Path, keys: bool = False) -> None:
        self.rig = Rig(tmp_path / "s.sqlite", demo_network(), clock=Clock())
        self.archive = Archive(":memory:")
        self.now, self.clock = 0.0, lambda: T0 + 300
        owner = {UUID: "ada", "w2": "bob"}
        known = KnownWorkflows(self.archive, self.clock, STUCK_AFTER_S)
        seen = Visible(self.archive, Rules((), owner.get), known)
        refresher = Refresher(self.archive, self.clock)
        self.followers = Followers(lambda: self.now)
        self.app = create_app(
            self.rig.broker,
            keyring(self.rig) if keys else Keyring((), self.rig.clock),
            books(self.rig),
            [
                workflows.refresh_router(seen, refresher, self.followers),
                workflows.router(seen),
                archive_api.router(self.archive, Rules(), self.clock),
            ],
        )


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[TestClient, Archive]]:
    made = Web(tmp_path)
    with TestClient(made.app) as client:
        yield client, made.archive


def test_every_example_of_the_section_is_as_it_is_shown(web: tuple[TestClient, Archive]) -> None:
    client, archive = web
    archive.record_many(example())
    section = DOCS.read_text(encoding="utf-8").partition("## Workflows\n")[2].partition("\n## ")[0]
    examples = EXAMPLE.findall(section)
    assert len(examples) == section.count("```http") == 7
    for verb, path, _, shown in examples:
        if path.endswith("/refresh"):  # no one here follows it: it stays asked
            answer = client.post(path, params={"wait_s": 0})
            assert answer.status_code == 202
            assert answer.json()["refreshed"] is False
            assert part_of(json.loads(shown)["workflow"], answer.json()["workflow"])
            continue
        answer = client.request(verb, path)
        assert answer.is_success, (path, answer.text)
        assert part_of(json.loads(shown), answer.json()), (path, answer.text)


def test_workflows_are_chosen_and_the_last_to_change_comes_first(
    web: tuple[TestClient, Archive],
) -> None:
    client, archive = web
    archive.record_many([
        workflow("w1", user="ada"), status("w1", T0 + 10, done=5, state=WorkflowState.DONE),
        workflow("w2", user="bob"), status("w2", T0 + 20),
        workflow("w3", user="ada", parent="w2", root="w2"), status("w3", T0 + 30, done=3, total=4),
        workflow("w4", user="ada"),
        status("told-by-nobody", T0 + 1),
    ])  # fmt: skip

    def ids(**query: Any) -> list[str]:
        return [row["id"] for row in client.get("/v1/workflows", params=query).json()]

    assert ids() == ["w3", "w2", "w1", "told-by-nobody", "w4"]
    assert ids(user="ada") == ["w3", "w1", "w4"]
    assert ids(state="done") == ["w1"]
    assert ids(state="planned") == ["w4"]
    assert ids(roots=True) == ["w2", "w1", "told-by-nobody", "w4"]
    assert ids(since=T0 + 20) == ["w3", "w2"]
    assert ids(limit=1) == ["w3"]
    pages, last = [], {}
    while page := client.get("/v1/workflows", params={"limit": 1, **last}).json():
        pages.append(page[0]["id"])
        last = {"cursor": f"{page[0]['at']}:{page[0]['id']}"}
    assert pages == ids()
    assert error(client.get("/v1/workflows?cursor=x"))[1] == "bad_request"
    (outer,) = [worker for worker in client.get("/v1/workflows").json() if worker["id"] == "w2"]
    assert outer["totals"] == {"done": 4, "fail": 0, "total": 9, "percent_done": 44.44}
    assert client.get("/v1/workflows/w2").json()["children"] == ["w3"]
    assert error(client.get("/v1/workflows?state=lost"))[1] == "bad_request"


def test_what_is_new_is_seen_at_the_next_look(web: tuple[TestClient, Archive]) -> None:
    client, archive = web
    assert client.get("/v1/workflows").json() == []
    archive.record_many([workflow(), status(done=1)])
    assert client.get(f"/v1/workflows/{UUID}").json()["status"]["done"] == 1
    archive.record(status(at=T0 + 150, done=3))
    archive.record(status(at=T0 + 120, done=2))  # late, and about before
    body = client.get(f"/v1/workflows/{UUID}").json()
    assert (body["status"]["done"], body["percent_done"]) == (3, 60.0)
    assert [change["done"] for change in body["history"]] == [1, 2, 3]


def test_a_workflow_may_be_known_by_its_folder(web: tuple[TestClient, Archive]) -> None:
    client, archive = web
    key = "/home/ada/dag with space"
    archive.record_many([workflow(key), status(key), job("A", key=key)])
    assert client.get(f"/v1/workflows/{key}").json()["id"] == key
    assert len(client.get(f"/v1/workflows/{key}/jobs").json()) == 1
    assert client.post(f"/v1/workflows/{key}/refresh?wait_s=0").status_code == 202


def test_stuck_is_said_with_its_reason(web: tuple[TestClient, Archive]) -> None:
    client, archive = web
    archive.record_many([workflow(), status(at=T0 + 300 - STUCK_AFTER_S)])
    (row,) = client.get("/v1/workflows?state=stuck").json()
    assert row["stuck"] == "nothing changed for 30 min"
    archive.record(status(at=T0 + 200))
    archive.record(Measurement("h", "held", UUID, 2.0, "1", T0 + 210, "event log", UUID))
    (row,) = client.get("/v1/workflows?state=stuck").json()
    assert row["stuck"] == "all 2 jobs in the queue held for 90 s"
    archive.record(Measurement("r", "held", UUID, 1.0, "1", T0 + 290, "event log", UUID))
    assert client.get("/v1/workflows?state=stuck").json() == []


def test_the_analysis_of_all_that_is_inside(web: tuple[TestClient, Archive]) -> None:
    client, archive = web
    archive.record_many([
        workflow(), job("A"), workflow("w2", parent=UUID, root=UUID), job("B", key="w2"),
        workflow("w3", parent="w2", root=UUID), job("C", key="w3"), transfer("s", key="w3"),
    ])  # fmt: skip
    path = f"/v1/workflows/{UUID}/analysis"
    assert client.get(path).json()["attempts"] == 1
    analysis = client.get(path, params={"whole": True}).json()
    assert (analysis["attempts"], analysis["workflows"]) == (3, [UUID, "w2", "w3"])
    assert analysis["cumulative_s"] == 90.0
    assert len(analysis["transfers"]) == 1


def test_jobs_by_kind_outcome_and_page(web: tuple[TestClient, Archive]) -> None:
    client, archive = web
    archive.record(workflow())
    archive.record_many(job(f"j{n}", at=T0 + n, kind="stage_in" if n % 2 else "compute",
                            outcome="failed" if n == 4 else "done") for n in range(6))  # fmt: skip

    def names(**query: Any) -> list[str]:
        jobs = client.get(f"/v1/workflows/{UUID}/jobs", params=query).json()
        return [row["job"] for row in jobs]

    assert names() == ["j0", "j1", "j2", "j3", "j4", "j5"]
    assert names(kind="stage_in") == ["j1", "j3", "j5"]
    assert names(outcome="failed") == ["j4"]
    assert names(limit=2, offset=3) == ["j3", "j4"]
    assert names(newest=True) == ["j5", "j4", "j3", "j2", "j1", "j0"]
    assert names(newest=True, kind="compute", limit=2, offset=1) == ["j2", "j0"]


def test_a_page_is_read_without_all_the_others(
    web: tuple[TestClient, Archive], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, archive = web
    archive.record(workflow())
    for n in range(50):
        some = (job(f"j{n}", at=T0 + n), transfer(f"t{n}", at=T0 + n), placement(f"j{n}"))
        archive.record_many(some)
    read = []
    rows = archive.engine.rows

    def counted(*arguments: Any) -> list[Any]:
        result = rows(*arguments)
        read.append(len(result))
        return result

    client.get(f"/v1/workflows/{UUID}")  # what is known of workflows is read once for all
    monkeypatch.setattr(archive.engine, "rows", counted)
    for what, name in {"jobs": "j", "transfers": "t"}.items():
        for options, first in (({}, 0), ({"offset": 3}, 3), ({"newest": True}, 49)):
            read.clear()
            page = {"limit": 2, **options}
            items = client.get(f"/v1/workflows/{UUID}/{what}", params=page).json()
            assert items[0]["job"] == f"{name}{first}" and len(items) == 2
            assert sum(read) <= 8, (what, options)


@settings(max_examples=40)
@given(st.integers(0, 12), st.integers(1, 12), st.booleans(), st.lists(st.booleans(), max_size=9))
def test_a_page_is_a_part_of_the_whole(
    offset: int, limit: int, newest: bool, visible: list[bool]
) -> None:
    """Also where some may not be seen, whatever the archive reads at once."""
    with Archive(":memory:") as archive:
        archive.record_many(
            [job(f"j{n}", at=T0 + n // 3, seconds=2.0 * may - 1.0) for n, may in enumerate(visible)]
        )
        known = KnownWorkflows(archive, lambda: T0, STUCK_AFTER_S)
        seen = Visible(archive, Rules(), known)
        whole = list(seen.of(ANYBODY, "job", [UUID]))
        page = seen.some(ANYBODY, "job", UUID, offset, limit, newest)
    assert page == (whole[::-1] if newest else whole)[offset : offset + limit]


def test_a_placement_by_task_is_found(web: tuple[TestClient, Archive]) -> None:
    client, archive = web
    archive.record_many([workflow(), job("bwa_ID7"), placement("ID7", site="tacc")])
    (row,) = client.get(f"/v1/workflows/{UUID}/jobs").json()
    assert row["placement"]["site"] == "tacc"


def test_what_has_a_placements_id_and_is_none_is_no_placement(
    web: tuple[TestClient, Archive],
) -> None:
    """Ids are whatever somebody recorded; and a name may have a colon in it."""
    client, archive = web
    other = replace(job("x"), id=f"placement:{UUID}:a")
    archive.record_many([workflow(), job("a"), job("b:c"), other])
    archive.record_many([workflow(f"{UUID}:b"), placement("c", key=f"{UUID}:b")])
    rows = client.get(f"/v1/workflows/{UUID}/jobs").json()
    assert {row["job"]: row["placement"] for row in rows} == {"a": None, "b:c": None, "x": None}


def test_who_may_answer_is_told_what_was_asked(tmp_path: Path) -> None:
    service = Web(tmp_path, keys=True)
    service.archive.record_many([
        workflow("mine", user="researcher-1"), workflow("followed", user="bob", by="agent-1"),
        workflow("other", user="bob"),
    ])  # fmt: skip
    with TestClient(service.app) as client:
        for key in ("mine", "followed", "other"):
            client.post(f"/v1/workflows/{key}/refresh?wait_s=0", headers=bearer("engineer"))

        def refreshes(role: str, after: int = 0) -> list[str]:
            answer = client.get(f"/v1/refreshes?after={after}", headers=bearer(role))
            return [row["workflow"] for row in answer.json()]

        assert refreshes("engineer") == ["mine", "followed", "other"]
        assert refreshes("engineer", 2) == ["other"]
        assert refreshes("researcher") == ["mine"]
        assert refreshes("agent") == ["followed"]
        assert error(client.get("/v1/refreshes", headers=bearer("measurement")))[1] == "forbidden"


def test_htcondors_own_transfers_have_the_paths_that_the_broker_gave(tmp_path: Path) -> None:
    def transit(name: str, at: float, path: list[str], src: str = "local") -> Transit:
        return made_transit(name, src, "mu", TransitState.RELEASED, workflow=UUID, job="bwa_ID1",
                       path=path, requested_at=at)  # fmt: skip

    transits = [
        transit("condor:a#1:in:1", T0 + 10, ["local", "s1", "mu"]),
        transit("condor:a#1:in:2", T0 + 30, []),
        transit("condor:a#1:in:3", T0 + 90, ["later"]),
        transit("hook:1", T0 + 35, ["other"]),
        transit("condor:a#1:in:1", T0 + 39, ["elsewhere"], src="tacc"),
    ]
    more = {"job": "bwa_ID1", "tool": "htcondor", "path": None, "transit": ""}
    with Archive(":memory:") as archive:
        archive.record_many([
            workflow(), transfer("x", pair="local>mu", at=T0 + 40, **more),
            transfer("y", pair="local>mu", at=T0 + 20, **more),
            transfer("z", pair="local>mu", at=T0 + 5, **more),
            transfer("w", pair="local>mu", at=T0 + 50, **(more | {"tool": "pegasus-transfer"})),
        ])  # fmt: skip
        known = KnownWorkflows(archive, lambda: T0, STUCK_AFTER_S)
        visible = Visible(archive, Rules(), known, {UUID: transits}.__getitem__)
        transfers = visible.transfers(ANYBODY, [UUID])
    assert [(m.details["path"], m.details["transit"]) for m in transfers] == [
        (None, ""), (["local", "s1", "mu"], "condor:a#1:in:1"), ([], "condor:a#1:in:2"), (None, ""),
    ]  # fmt: skip


# ------------------------------------------------------------------ refresh


def followed(tmp_path: Path, archive: Archive) -> Submitted:
    planned = Submitted(tmp_path / "run0001")
    append(planned.out, starting() + table(START + 10, done=1, unready=2))
    Follower(planned.path, archive).poll()
    return planned


def test_a_directory_on_this_machine_is_read_at_once(
    web: tuple[TestClient, Archive], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "EVERY_S", 1e6)
    client, archive = web
    planned = followed(tmp_path, archive)
    (key,) = archive.latest("status")
    if archive.get(f"workflow:{key}") is None:
        archive.record(workflow(key, submit_dir=str(planned.path), host=os.uname().nodename))
    append(planned.out, table(START + 20, done=2, unready=1))
    answer = client.post(f"/v1/workflows/{key}/refresh")
    assert answer.status_code == 200, answer.text
    assert answer.json()["refreshed"] is True
    assert answer.json()["workflow"]["status"]["done"] == 2
    number = answer.json()["request"]
    assert archive.get(f"status:{key}:refresh:{number}:{T0 + 300:.3f}") is not None
    # Within the same second it is not measured again.
    append(planned.out, table(START + 30, done=3, unready=0))
    assert client.post(f"/v1/workflows/{key}/refresh").json() == answer.json()
    # Later it is, with nothing new as well: a status of its own all the same.
    monkeypatch.setattr(workflows, "EVERY_S", 0.0)
    again = client.post(f"/v1/workflows/{key}/refresh").json()
    assert again["workflow"]["status"]["done"] == 3
    number = again["request"]
    again = client.post(f"/v1/workflows/{key}/refresh").json()
    assert again["refreshed"] is True and again["request"] > number


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait for a measurement ends before there is one."""
    monkeypatch.setattr(workflows, "time", SimpleNamespace(monotonic=lambda: 0.0))


@pytest.mark.usefixtures("unhurried")
def test_who_asks_while_it_is_measured_gets_that_answer(
    web: tuple[TestClient, Archive],
) -> None:
    client, archive = web
    archive.record_many([workflow("w2", host="elsewhere"), workflow("w3", host="elsewhere")])
    with ThreadPoolExecutor(5) as pool:
        ask = partial(client.post, "/v1/workflows/w2/refresh?wait_s=10")
        waits = [pool.submit(ask) for _ in range(5)]
        other = client.post("/v1/workflows/w3/refresh?wait_s=0")
        assert other.status_code == 202
        while len(pending := archive.requests(KIND)) < 2:
            threading.Event().wait(0.01)
        late = client.post("/v1/workflows/w2/refresh?wait_s=0").json()
        requests = {workflow: (number, at) for number, workflow, at in pending}
        number, at = requests["w2"]
        assert (late["refreshed"], late["request"]) == (False, number)
        archive.record(replace(status("w2"), id=answer_id("w2", number, at)))
        answers = [wait.result() for wait in waits]
    assert {(a.status_code, a.json()["request"]) for a in answers} == {(200, number)}
    assert len(archive.requests(KIND)) == 2


def test_a_measurement_that_failed_is_nobody_elses_answer(
    web: tuple[TestClient, Archive], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, archive = web
    archive.record(workflow("w2", host="elsewhere"))
    with monkeypatch.context() as broken:

        def full(*_: object) -> int:
            raise ArchiveError("the disk is full")

        broken.setattr(archive, "ask", full)
        assert client.post("/v1/workflows/w2/refresh?wait_s=0").status_code == 503
    assert client.post("/v1/workflows/w2/refresh?wait_s=0").status_code == 202


def test_what_somebody_sent_over_the_network_is_not_read_here(
    web: tuple[TestClient, Archive], tmp_path: Path
) -> None:
    client, archive = web
    planned = Submitted(tmp_path / "run0001")
    append(planned.out, starting() + table(START + 10, done=1, unready=2))
    key = SubmitDir(planned.path).workflow
    archive.record(workflow(key, submit_dir=str(planned.path), host=os.uname().nodename, by="ada"))
    assert client.post(f"/v1/workflows/{key}/refresh?wait_s=0").status_code == 202
    assert archive.query("job") == archive.query("status") == []


def test_who_follows_it_elsewhere_is_asked(web: tuple[TestClient, Archive], tmp_path: Path) -> None:
    client, archive = web
    planned = Submitted(tmp_path / "run0001")
    append(planned.out, starting() + table(START + 10, done=1, unready=2))
    key = SubmitDir(planned.path).workflow
    # As another machine says it: this process may not look for itself.
    archive.record_many([workflow(key, host="elsewhere", user=""), workflow("w2")])
    follower = Follower(planned.path, archive, requests=archive, keep=True)
    stop = threading.Event()
    thread = threading.Thread(target=follower.run, args=(stop,))
    thread.start()
    try:
        ask = partial(client.post, f"/v1/workflows/{key}/refresh?wait_s=10")
        while (answer := ask()).status_code == 202:
            pass
        assert answer.status_code == 200, answer.text
        assert answer.json()["workflow"]["status"]["done"] == 1
        assert client.post("/v1/workflows/w2/refresh?wait_s=0.5").status_code == 202
    finally:
        stop.set()
        thread.join()


# ------------------------------------------------------------------ whatever was recorded

anything = any_json(max_leaves=6)
KEYS = sorted({key for m in example() for key in m.details})


@settings(shared_fixtures, max_examples=20)
@given(
    metric=st.sampled_from(["workflow", "status", "job", "job_transfer", "placement", "held"]),
    subject=st.text(max_size=12) | st.just(UUID),
    value=st.floats(allow_nan=False, allow_infinity=False) | st.just(1.7e308),
    details=st.dictionaries(st.sampled_from(KEYS), anything, max_size=6),
)
def test_nothing_recorded_breaks_an_answer(
    web: tuple[TestClient, Archive], metric: str, subject: str, value: float, details: Any
) -> None:
    client, archive = web
    unit = {"workflow": "1", "status": "%", "job": "s", "job_transfer": "byte", "placement": "s"}
    number = archive.latest_seq()
    archive.record(workflow())
    made = Measurement(f"x{number}", metric, subject, value, unit.get(metric, "1"), T0, "somebody",
                       UUID, details)  # fmt: skip
    with suppress(InputError):  # no archive takes it
        archive.record(made)
    for ending in ("", f"/{UUID}", f"/{UUID}/analysis?whole=1", f"/{UUID}/jobs",
                   f"/{UUID}/transfers"):  # fmt: skip
        answer = client.get(f"/v1/workflows{ending}")
        assert answer.status_code in (200, 404), answer.text
        assert answer.is_success or ending == f"/{UUID}"


@pytest.mark.usefixtures("unhurried")
def test_who_waits_for_a_measurement_takes_no_thread(web: tuple[TestClient, Archive]) -> None:
    client, archive = web
    archive.record(workflow("w2", host="elsewhere"))

    def one_thread() -> None:
        to_thread.current_default_thread_limiter().total_tokens = 1

    assert client.portal is not None
    client.portal.call(one_thread)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(client.post, "/v1/workflows/w2/refresh?wait_s=10")
        while not (pending := archive.requests(KIND)):
            threading.Event().wait(0.01)
        assert client.get("/v1/workflows").status_code == 200
        assert not waits.done()
        number, _, at = pending[0]
        archive.record(replace(status("w2"), id=answer_id("w2", number, at)))
        assert waits.result().json()["refreshed"]


def test_who_follows_and_does_not_ask_again_is_silent(tmp_path: Path) -> None:
    service = Web(tmp_path, keys=True)
    with TestClient(service.app) as client:

        def ask(**query: object) -> None:
            params = {"follower": "host, process 7", **query}
            path = f"/v1/refreshes?{urlencode(params)}"
            assert client.get(path, headers=bearer("agent")).status_code == 200

        for service.now in (0.0, 5.0):
            ask()
        service.now = 14.0
        assert service.followers.silent() == {}
        service.now = 16.0
        (silent,) = service.followers.silent().items()
        assert "host, process 7" in silent[0] and silent[1][0] == 5.0
        ask()
        assert service.followers.silent() == {}
        ask(ends="true")
        service.now = 100.0
        assert service.followers.silent() == {}
