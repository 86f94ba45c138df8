"""Who is notified of what, once each."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workflow_world import T0, UUID, job, status, workflow

from monitors.alerts.notices import channels
from monitors.alerts.notices.channels import Delivery, deliver
from monitors.alerts.notices.service import (
    OF_USER,
    OF_WORKFLOW,
    TRIES,
    WINDOW_S,
    NoticeService,
    may_run,
)
from monitors.alerts.notices.targets import (
    KINDS,
    Notice,
    Target,
    check_targets,
    headers_of,
    notice_id,
    targets_from_list,
    wants,
)
from monitors.alerts.notices.workflows import WorkflowNotices, workflow_notice
from monitors.archive.archive import Archive, Measurement
from monitors.workflows.analysis import analyse
from monitors.workflows.logs.status import Status, WorkflowState
from monitors.workflows.overview import KnownWorkflows, Overview
from network_provisioner.base.errors import InputError

ALL = Target(on=frozenset(KINDS), webhook="https://hook.example/x")
MAIL = Target(on=frozenset(KINDS), command=("mail", "ada"))


class Time:
    """Goes on only where it is told to."""

    def __init__(self) -> None:
        self.now = T0 + 1000

    def __call__(self) -> float:
        return self.now


class Hook:
    """A channel that answers as it is told."""

    def __init__(self, *answers: Delivery) -> None:
        self.answers = list(answers)
        self.got: list[tuple[str, str]] = []
        self.texts: list[str] = []

    def deliver(self, target: Target, notice: Notice, key: str) -> Delivery:
        self.got.append((target.id, key))
        self.texts.append(notice.text)
        return self.answers.pop(0) if self.answers else Delivery(True)


def service(
    archive: Archive, hook: Any, *targets: Target, time: Callable[[], float] | None = None
) -> NoticeService:
    clock = time or Time()
    return NoticeService(targets or (ALL,), archive, clock, clock, hook.deliver)


def work(notifier: NoticeService) -> None:
    """All that is due, in this thread."""
    while notifier._tasks and notifier._tasks[0].due <= notifier._steady():
        task = notifier._next()
        assert task is not None
        notifier._do(task)


def ends(archive: Archive) -> list[tuple[str, float]]:
    return [
        (m.details["outcome"], m.value) for m in archive.query("notice") if m.id.endswith(":end")
    ]


# ------------------------------------------------------------------ configuration


def test_what_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("# token\nAuthorization: Bearer x y\n\nX-A:b\n")
    hook, mail = targets_from_list(
        [
            {
                "on": ["failed", "link"],
                "users": ["ada"],
                "webhook": "https://h/x",
                "headers_file": "h",
            },
            {"command": ["mail", "-s", "ADON", "ada@example.edu"]},
        ],
        tmp_path,
    )
    assert headers_of(hook) == {"Authorization": "Bearer x y", "X-A": "b"}
    assert hook.on == {"failed", "link"}
    assert mail.on == {"finished", "failed", "stuck", "anomaly", "link"}
    assert (hook.shown, mail.shown) == ("https://h", "mail")
    assert hook.id != mail.id


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("x", "is 'x', expected a mapping"),
        ({"webhok": "http://h"}, "did you mean 'webhook'"),
        ({}, "expected one of webhook and command"),
        ({"webhook": "http://h", "command": ["x"]}, "expected one of webhook and command"),
        ({"webhook": "ftp://h/x"}, "expected http:// or https://"),
        ({"webhook": "http://h/x y"}, "expected http:// or https://"),
        ({"webhook": "http://h:99999/"}, "expected http:// or https://"),
        ({"command": "mail"}, "command: found 'mail', expected a list"),
        ({"command": []}, "command: found [], expected 1 or more"),
        ({"command": ["a\0b"]}, "command.0: found 'a\\x00b', expected a text"),
        ({"on": ["sunset"], "command": ["x"]}, "found 'sunset'"),
        ({"users": [], "command": ["x"]}, "users: found []"),
        ({"headers_file": "h", "command": ["x"]}, "which is for a webhook"),
    ],
)
def test_what_cannot_be_meant_is_one_line(item: object, said: str) -> None:
    with pytest.raises(InputError, match=r"^monitoring\.notices\.0[^\n]*$") as caught:
        check_targets([item])
    assert said in str(caught.value)


def test_a_header_that_is_none_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("secret-token\n")
    with pytest.raises(InputError, match="h:1: expected 'Name: value'") as caught:
        targets_from_list([{"webhook": "http://h/", "headers_file": "h"}], tmp_path)
    assert "secret" not in str(caught.value)


# ------------------------------------------------------------------ deciding


def test_who_wants_what() -> None:
    notice = Notice("failed", "k", "t", T0, {"user": "ada", "name": "soykb-7", "workflow": "u-1"})
    assert wants(ALL, notice)
    assert not wants(Target(on=frozenset({"stuck"}), command=("x",)), notice)
    assert wants(Target(users=("a*",), command=("x",)), notice)
    assert not wants(Target(users=("bob",), command=("x",)), notice)
    assert wants(Target(workflows=("soykb-*",), command=("x",)), notice)
    assert wants(Target(workflows=("u-1",), command=("x",)), notice)
    assert not wants(Target(users=("ada",), workflows=("other",), command=("x",)), notice)
    anomaly = Notice("anomaly", "k", "t", T0, {})
    assert wants(ALL, anomaly)
    assert not wants(Target(users=("*",), command=("x",)), anomaly)
    assert wants(ALL, Notice("link", "k", "t", T0, {}))
    assert not wants(Target(users=("*",), command=("x",)), Notice("link", "k", "t", T0, {}))


# ------------------------------------------------------------------ each thing once


def test_a_thing_is_told_once_however_often_it_is_said() -> None:
    archive, hook = Archive(":memory:"), Hook()
    notifier = service(archive, hook, ALL, MAIL)
    for _ in range(3):
        notifier.tell("anomaly", "a1", "it dips", {})
        work(notifier)
    assert sorted(hook.got) == sorted((t.id, f"notice:{t.id}:anomaly:a1") for t in (ALL, MAIL))
    assert ends(archive) == [("delivered", 1.0)] * 2
    again = Hook()
    restarted = service(archive, again, ALL, MAIL)
    restarted._take_over()
    restarted.tell("anomaly", "a1", "it dips", {})
    work(restarted)
    assert again.got == []


def failed(number: int, workflow: str, user: str) -> Notice:
    details = {"workflow": workflow, "user": user}
    return Notice("failed", f"{workflow}:{number}", f"Workflow {workflow} failed\n", T0, details)


def test_nobody_is_told_without_end() -> None:
    archive, hook, time = Archive(":memory:"), Hook(), Time()
    notifier = service(archive, hook, time=time)
    for number in range(300):
        notifier.tell_of(failed(number, "forged", "eve"))
    work(notifier)
    assert len(hook.texts) == OF_WORKFLOW
    assert "No more notices of workflow forged for an hour." in hook.texts[-1]
    assert "Nothing more" not in hook.texts[-2]
    for number in range(300):
        notifier.tell_of(failed(0, f"w{number}", "eve"))
    notifier.tell_of(failed(0, "w", "ada"))
    notifier.tell_of(Notice("anomaly", "a", "slow\n", T0, {}))
    work(notifier)
    assert len(hook.texts) == OF_USER + 2
    assert "No more notices of user eve for an hour." in hook.texts[OF_USER - 1]
    assert sum(outcome == "held back" for outcome, _ in ends(archive)) == 600 - OF_USER
    time.now += WINDOW_S
    notifier.tell_of(failed(0, "w0", "eve"))  # once is once, though it was not told
    notifier.tell_of(failed(1, "w0", "eve"))
    work(notifier)
    assert len(hook.texts) == OF_USER + 3


def test_of_every_link_is_told_that_it_failed_and_that_it_works_again() -> None:
    hook = Hook()
    notifier = service(Archive(":memory:"), hook)
    for number in range(2 * OF_USER):
        for again in ("", ":again"):
            link = {"link": f"s1-s{number}"}
            notifier.tell_of(Notice("link", f"s1-s{number}{again}", "The link\n", T0, link))
    work(notifier)
    assert hook.texts == ["The link\n"] * 4 * OF_USER


def test_what_was_told_before_a_restart_does_not_count() -> None:
    archive, hook, time = Archive(":memory:"), Hook(), Time()
    for _ in range(2):
        notifier = service(archive, hook, time=time)
        for number in range(OF_USER):
            notifier.tell_of(failed(0, f"w{number}", "ada"))
        work(notifier)
    notifier.tell_of(failed(0, "new", "ada"))
    work(notifier)
    assert len(hook.texts) == OF_USER + 1


def test_what_fails_is_tried_again_later_and_later() -> None:
    archive, time = Archive(":memory:"), Time()
    hook = Hook(Delivery(False, "HTTP 500"), Delivery(False, "HTTP 503", later_s=50.0))
    notifier = service(archive, hook, time=time)
    notifier.tell("failed", "k", "t", {})
    work(notifier)
    assert len(hook.got) == 1
    time.now += 2.0
    work(notifier)
    assert len(hook.got) == 2
    time.now += 49.0
    work(notifier)
    assert len(hook.got) == 2
    time.now += 1.0
    work(notifier)
    assert len(hook.got) == 3
    assert len(set(hook.got)) == 1  # the same key each time
    assert ends(archive) == [("delivered", 1.0)]


def test_it_is_given_up_after_some_tries_or_where_it_is_refused() -> None:
    archive, time = Archive(":memory:"), Time()
    hook = Hook(*[Delivery(False, "no")] * 99)
    notifier = service(archive, hook, time=time)
    notifier.tell("failed", "k", "t", {})
    for _ in range(TRIES + 3):
        work(notifier)
        time.now += 4000
    assert len(hook.got) == TRIES
    assert ends(archive) == [("given up", 0.0)]
    refused = Hook(Delivery(False, "HTTP 404", again=False))
    notifier = service(archive, refused, time=time)
    notifier.tell("failed", "other", "t", {})
    work(notifier)
    assert len(refused.got) == 1
    assert ends(archive)[-1] == ("given up", 0.0)


class Killed(BaseException):
    """The process is gone."""


class KillingArchive(Archive):
    """Dies at the n-th record, before or after it is written."""

    def __init__(self, path: Path, at: int, after: bool) -> None:
        super().__init__(path)
        self.left, self.late = at, after

    def record(self, measurement: Measurement) -> bool:
        self.left -= 1
        if self.left == 0 and not self.late:
            raise Killed
        added = super().record(measurement)
        if self.left == 0:
            raise Killed
        return added


@settings(deadline=None, max_examples=40)
@given(
    at=st.integers(1, 8),
    after=st.booleans(),
    command=st.booleans(),
    failures=st.integers(0, 2),
    keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=4),
)
def test_a_process_killed_anywhere_neither_loses_nor_doubles_a_notice(
    tmp_path_factory: pytest.TempPathFactory,
    at: int,
    after: bool,
    command: bool,
    failures: int,
    keys: list[str],
) -> None:
    path = tmp_path_factory.mktemp("archive") / "a.sqlite"
    target, time = MAIL if command else ALL, Time()
    hook = Hook(*[Delivery(False, "no")] * failures)
    killing = KillingArchive(path, at, after)
    first = service(killing, hook, target, time=time)
    try:
        for key in keys:
            first.tell("anomaly", key, f"text {key}", {})
            work(first)
        time.now += 5000
        work(first)
    except Killed:
        pass
    killing.close()
    with Archive(path) as archive:
        second = NoticeService((target,), archive, time, time, hook.deliver, runs=lambda _: False)
        second._take_over()
        # What found it finds it again.
        for key in keys:
            second.tell("anomaly", key, f"text {key}", {})
        for _ in range(4):
            work(second)
            time.now += 5000
        ids = {m.details["of"] for m in archive.query("notice") if m.id.endswith(":end")}
        assert ids == {notice_id(target, Notice("anomaly", key, "", 0.0)) for key in set(keys)}
        # Each was tried; of tries, all but the ones that failed and one whose end was not noted
        # delivered it.
        tries = {key: [k for _, k in hook.got].count(key) for _, key in hook.got}
        if command:
            assert sum(tries.values()) <= len(set(keys)) + failures
        else:
            assert set(tries) == ids
            assert sum(tries.values()) <= len(set(keys)) + failures + 1


def test_notices_of_a_process_that_runs_are_its_own() -> None:
    archive, hook = Archive(":memory:"), Hook()
    first = service(archive, Hook())
    first.tell("failed", "k", "t", {})
    task = first._next()
    assert task is not None
    claim = first._record(notice_id(ALL, task.notice), task, "", 1.0)
    archive.record(claim)
    assert may_run(claim)
    second = service(archive, hook)
    second._take_over()
    work(second)
    assert hook.got == []
    nobody = dict(claim.details) | {"process": [os.uname().nodename, 2**22 + 1, "1"]}
    assert not may_run(replace(claim, details=nobody))
    other = dict(claim.details) | {"process": [os.uname().nodename, os.getppid(), "another time"]}
    assert not may_run(replace(claim, details=other))
    away = dict(claim.details) | {"process": ["another-machine", 1, "1"]}
    assert may_run(replace(claim, details=away))


# ------------------------------------------------------------------ workflows


class Told:
    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def tell_of(self, notice: Notice) -> None:
        self.notices.append(notice)


def looking(archive: Archive, notifier: Told, time: Time) -> WorkflowNotices:
    return WorkflowNotices(archive, notifier, time, KnownWorkflows(archive, time, 1800.0))


@pytest.fixture
def watched() -> tuple[Archive, Told, Time, WorkflowNotices]:
    archive, notifier, time = Archive(":memory:"), Told(), Time()
    return archive, notifier, time, looking(archive, notifier, time)


Watched = tuple[Archive, Told, Time, WorkflowNotices]


def test_each_end_of_a_workflow_is_told(watched: Watched) -> None:
    archive, notifier, time, notices = watched
    notices.observe()
    at = time.now
    archive.record_many([workflow(at=at), status(at=at + 1)])
    notices.observe()
    assert notifier.notices == []
    archive.record_many([
        status(at=at + 60, done=3, state=WorkflowState.FAILED),
        job("bwa_ID1", at=at + 50, outcome="failed", exitcode=3, stderr="no reads\nat all"),
        job("bwa_ID2", at=at + 40, outcome="failed"), job("bwa_ID2", 1, at=at + 55),
    ])  # fmt: skip
    notices.observe()
    notices.observe()
    (failed,) = notifier.notices
    assert failed.kind == "failed"
    assert failed.subject == "Workflow soykb of ada failed after 60 s"
    assert "Failed: bwa_ID1 at mu: exit code 3\n    no reads\n    at all\n" in failed.text
    assert "bwa_ID2" not in failed.text
    assert failed.details["failures"] == [
        {"job": "bwa_ID1", "site": "mu", "exitcode": 3, "reason": ""}
    ]
    # Measured at once, it has failed no second time; rescued and done, it has finished.
    archive.record(status(at=at + 60, done=3, state=WorkflowState.FAILED, name="refresh:1"))
    notices.observe()
    archive.record(status(at=at + 90, done=3))
    archive.record(status(at=at + 100, done=5, state=WorkflowState.DONE, name="end"))
    notices.observe()
    assert [n.kind for n in notifier.notices] == ["failed", "finished"]
    assert len({n.key for n in notifier.notices}) == 2


def test_what_was_over_before_anybody_looked_is_not_told(watched: Watched) -> None:
    archive, notifier, time, notices = watched
    archive.record_many([workflow(), status(done=5, state=WorkflowState.DONE)])
    notices.observe()
    assert notifier.notices == []
    # What ended while nobody ran is told by the next.
    time.now += 100
    archive.record_many([workflow("w2"), status("w2", time.now, 5, WorkflowState.DONE)])
    time.now += 100
    looking(archive, notifier, time).observe()
    assert [n.details["workflow"] for n in notifier.notices] == ["w2"]


def test_stuck_is_told_once_for_each_standstill(watched: Watched) -> None:
    archive, notifier, time, notices = watched
    notices.observe()
    archive.record_many([workflow(at=time.now), status(at=time.now)])
    time.now += 1801
    notices.observe()
    time.now += 1801
    notices.observe()
    assert [n.subject for n in notifier.notices] == [
        "Workflow soykb of ada is stuck: nothing changed for 30 min"
    ]
    archive.record(status(at=time.now, done=2))
    notices.observe()
    time.now += 1801
    notices.observe()
    assert [n.kind for n in notifier.notices] == ["stuck", "stuck"]
    assert len({n.key for n in notifier.notices}) == 2


def test_a_standstill_that_begins_after_all_else_is_told(watched: Watched) -> None:
    """Its last change is older than the notifier; held jobs are no change."""
    archive, notifier, time, notices = watched
    archive.record_many([workflow("w2"), status("w2", time.now - 7200)])
    archive.record_many([workflow(), status(at=time.now - 100)])
    notices.observe()
    time.now += 50
    archive.record(Measurement("h", "held", UUID, 2.0, "1", time.now, "event log", UUID, {}))
    notices.observe()
    time.now += 61
    notices.observe()
    notices.observe()
    assert [n.subject for n in notifier.notices] == [
        "Workflow soykb of ada is stuck: all 2 jobs in the queue held for 61 s"
    ]


def test_workflows_inside_others_are_told_with_them(watched: Watched) -> None:
    archive, notifier, time, notices = watched
    notices.observe()
    at = time.now
    inner = job("join_ID4", key="inner", outcome="failed", exitcode=1, stderr="boom", at=at)
    archive.record_many([
        workflow(at=at), workflow("inner", at, parent=UUID, root=UUID), inner,
        status("inner", at, 1, WorkflowState.FAILED), status(UUID, at + 1, 1, WorkflowState.FAILED),
    ])  # fmt: skip
    notices.observe()
    (failed,) = notifier.notices
    assert failed.details["workflow"] == UUID
    assert "Failed: join_ID4 at mu" in failed.text


@given(name=st.text(max_size=20), stderr=st.text(max_size=200))
def test_no_name_breaks_a_notice(name: str, stderr: str) -> None:
    failed = analyse([job("j", job=name, outcome="failed", stderr=stderr)]).failures
    overview = Overview(UUID, name=name, user=name, status=Status.from_measurement(status(done=1)))
    notice = workflow_notice(overview, "failed", failed)
    assert all(c.isprintable() or c in "\n\t" for c in notice.text)
    assert "\n" not in notice.subject


# ------------------------------------------------------------------ commands


@pytest.mark.parametrize("key", ["notice:1:failed:w:1.5", "/wörk 日本/ü\n.dag", "%41"])
def test_a_web_hook_gets_the_key_whatever_a_workflow_is_called(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "_HOOK_S", 300.0)  # of a busy machine
    requests: list[tuple[str, str]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append((self.headers["Idempotency-Key"], body["key"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.timeout = 300.0  # where nobody comes
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        target = Target(webhook=f"http://127.0.0.1:{server.server_port}/")
        delivery = deliver(target, Notice("failed", "k", "text", T0), key)
        thread.join()
    assert delivery == Delivery(True)
    ((header, body_key),) = requests
    assert body_key == key and (unquote(header) == key or header == key)


def test_a_command_gets_the_text(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = "import os,sys; print(os.environ['ADON_NOTICE_SUBJECT'], sys.stdin.read(),"
    code += f" file=open({str(out)!r}, 'w'))"
    target = Target(command=(sys.executable, "-c", code))
    notice = Notice("failed", "k", "Workflow x failed\nwhy ü\n", T0)
    assert deliver(target, notice, "key") == Delivery(True)
    assert out.read_text() == "Workflow x failed Workflow x failed\nwhy ü\n\n"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("/no/such/program",), "/no/such/program: "),
        ((sys.executable, "-c", "import sys; sys.exit('cannot: no mail')"), "exit code 1: cannot"),
        ((sys.executable, "-c", "import os; os.close(0); os._exit(5)"), "exit code 5: it said"),
    ],
)
def test_a_command_that_fails_says_why(command: tuple[str, ...], why: str) -> None:
    said = deliver(Target(command=command), Notice("failed", "k", "x" * 10**6, T0), "k")
    assert not said.ok and said.again
    assert why in said.why


def test_of_many_workflows_those_of_late_are_looked_at() -> None:
    """With all that is around and inside them."""
    with Archive(":memory:") as archive:
        old = {"at": T0 - 1e6}
        archive.record_many([
            workflow("old", **old), status("old", **old),
            workflow("outer", **old), workflow("inner", **old, parent="outer", root="outer"),
            status("outer", **old), status("inner"), status("undescribed"),
            workflow("planned"), workflow("sibling", **old, parent="outer", root="outer"),
        ])  # fmt: skip
        known = KnownWorkflows(archive, lambda: T0, 1800.0)
        recent = known.all(lambda _: True, T0)
        assert set(recent) == {"outer", "inner", "sibling", "undescribed", "planned"}
        everything = known.all(lambda _: True)
        assert {**recent, "old": everything["old"]} == everything
