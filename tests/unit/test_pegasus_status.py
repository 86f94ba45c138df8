"""pegasus-status is asked where DAGMan's own log says nothing, and believed where it can be so."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_files import START, Submitted, append, starting, submitted, table
from waiting import until

from monitors.archive.archive import Archive
from monitors.workflows.follower import Follower
from monitors.workflows.inquiries import Fallback, Inquiries, ask, key_of, parsed
from monitors.workflows.logs.status import Status, WorkflowState

WAIT_S = 300.0


def said(**changes: Any) -> str:
    """What it prints of ten jobs."""
    root: dict[str, Any] = {
        "unready": 1, "ready": 2, "pre": 0, "queued": 3, "post": 1, "succeeded": 2, "failed": 1,
        "percent_done": 20.0, "total": 10, "state": "Running", "dagname": "w-0.dag",
    }  # fmt: skip
    return json.dumps({"totals": {}, "dags": {"root": root | changes}})


def test_what_it_prints_becomes_the_eight_fields() -> None:
    status = parsed(said(), 7.0)
    assert status is not None
    assert list(status.fields().values()) == [1, 2, 0, 3, 1, 2, 1, 20.0]
    assert (status.total, status.futile, status.at) == (10, 0, 7.0)
    assert status.state is WorkflowState.RUNNING
    assert key_of(status) != key_of(parsed(said(queued=2), 7.0) or status)


@pytest.mark.parametrize(("theirs", "ours"), [("Success", "done"), ("Failure", "failed")])
def test_its_states(theirs: str, ours: str) -> None:
    status = parsed(said(state=theirs), 0.0)
    assert status is not None and status.state == WorkflowState(ours)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "(No matching jobs found in Condor Q)",
        "{}",
        '{"dags": {"root": []}}',
        said(total=0, percent_done=0.0),  # zeros: it has not understood it either
        said(total=9, percent_done=22.22),  # more jobs than there are
        said(percent_done=90.0),
        said(percent_done=float("nan")),
        said(percent_done="20.0"),
        said(queued=-3),
        said(queued=3.5),
        said(queued=True),
        said(queued=None),
        said(state=""),
        said(state=None),
        "[" * 100_000,
    ],
)
def test_what_cannot_be_is_not_believed(text: str) -> None:
    assert parsed(text, 0.0) is None


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(list(json.loads(said())["dags"]["root"])), VALUES))
def test_whatever_it_prints(changes: dict[str, Any]) -> None:
    status = parsed(said(**changes), 0.0)
    if status is not None:
        counts = (status.unready, status.ready, status.pre, status.in_queue, status.post,
                  status.done, status.fail, status.futile)  # fmt: skip
        assert min(counts) >= 0 and sum(counts) == status.total
        assert 0 <= status.percent_done <= 100.011


# ------------------------------------------------------------------ whom to ask about


def test_it_is_asked_after_a_while_and_seldom() -> None:
    queries: list[Path] = []

    def run(folder: Path) -> str:
        queries.append(folder)
        return said()

    workflow_dir = Path("/w/one")
    patient = Fallback(run, lambda: 5.0, patience_s=3600.0)
    assert patient.observe([workflow_dir]) == {} and queries == []
    quick = Fallback(run, lambda: 5.0, patience_s=0.0, again_s=3600.0)
    (answer,) = until(lambda: quick.observe([workflow_dir])).items()
    assert answer[0] == workflow_dir and answer[1].at == 5.0
    for _ in range(3):
        assert quick.observe([workflow_dir]) == {}
    assert queries == [workflow_dir]
    quick.observe([])
    until(lambda: quick.observe([workflow_dir]))  # unclear once more
    assert queries == [workflow_dir, workflow_dir]
    quick.close()
    patient.close()


def test_an_answer_that_comes_too_late_is_not_taken() -> None:
    go = threading.Event()

    def run(_: Path) -> str:
        go.wait(WAIT_S)
        return said()

    slow = Fallback(run, lambda: 5.0, patience_s=0.0)
    slow.observe([Path("/w")])
    go.set()
    slow.close()
    assert slow.observe([]) == {}


PROGRAM = """\
#!/bin/sh
echo "$@" >> {log}
cat {answer}
exit {code}
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Path]:
    """A pegasus-status on PATH."""

    def make(answer: str, code: int = 0) -> Path:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "answer").write_text(answer)
        file = tmp_path / "bin" / "pegasus-status"
        log = tmp_path / "asked"
        file.write_text(PROGRAM.format(log=log, answer=tmp_path / "answer", code=code))
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
        return log

    return make


def test_it_is_asked_by_its_command_line(
    tmp_path: Path, program: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = program(said())
    assert parsed(ask(tmp_path / "run"), 0.0) is not None
    assert log.read_text() == f"-j -Q {tmp_path}/run\n"
    program(said(), 1)
    assert ask(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask(tmp_path) is None


def test_a_log_that_says_nothing_while_dagman_runs(
    tmp_path: Path, program: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And DAGMan's own word counts again when it is understood."""
    monkeypatch.setattr("monitors.workflows.follower.LOOK_ANYWAY_S", 0.0)
    log = program(said())
    planned = Submitted(tmp_path / "run")
    planned.out.write_text("something else altogether\n" * 50)
    planned.dagman.write_text(submitted(1, START))
    seen: list[Status] = []
    stop, more = threading.Event(), threading.Condition()

    def on_status(_: object, status: Status) -> None:
        with more:
            seen.append(status)
            more.notify_all()

    with Archive(tmp_path / "a.sqlite") as archive:
        follower = Follower(
            planned.path,
            archive,
            on_status=on_status,
            inquiries=Inquiries(Fallback(patience_s=0.0)),
        )
        thread = threading.Thread(target=follower.run, args=(stop,))
        thread.start()
        with more:
            assert more.wait_for(lambda: seen, WAIT_S)
        assert log.read_text()
        (status,) = archive.query("status")
        assert (status.source, status.details["in_queue"]) == ("pegasus-status", 3)
        append(planned.out, starting(START + 1) + table(START + 2, queued=4))
        with more:
            assert more.wait_for(lambda: seen[-1].in_queue == 4, WAIT_S)
        (member,) = follower.workflows
        assert not member.unclear
        stop.set()
        thread.join(WAIT_S)
        assert {m.source for m in archive.query("status")} == {"pegasus-status", "dagman"}


@pytest.mark.parametrize(
    ("out", "dagman", "unclear"),
    [
        ("", "", False),
        ("nonsense\n", "", True),
        (starting() + table(START, queued=1), "", False),
        (starting() + table(START, queued=1), submitted(1, START), False),
        (starting() + table(START, queued=1), submitted(1, START + 99), True),  # of a run before
        (None, submitted(1, START), True),
    ],
)
def test_what_is_unclear(tmp_path: Path, out: str | None, dagman: str, unclear: bool) -> None:
    planned = Submitted(tmp_path / "run")
    if out is not None:
        planned.out.write_text(out)
    if dagman:
        planned.dagman.write_text(dagman)
    with Archive(":memory:") as archive:
        follower = Follower(planned.path, archive)
        follower.poll()
        assert follower.workflows[0].unclear is unclear
