"""The size of the pool over time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from adon.service import poolsize
from adon.service.poolsize import SAME_S, PoolChanges, PoolSize, ResidentPool, size_of
from condor_plugins.pool.sitepool import SitePool
from monitors.archive.archive import Archive
from monitors.archive.outbox import Outbox
from network_provisioner.base.errors import AdonError

NOW = 1_000_000.0
MU = SitePool("mu", NOW, slots=8, idle_slots=3, ahead=2.0)
TACC = SitePool("tacc", NOW, slots=4, idle_slots=4, ahead=0.0)
SIZES = st.dictionaries(
    st.tuples(st.sampled_from(["pool_slots", "pool_busy"]), st.sampled_from(["", "mu", "tacc"])),
    st.integers(0, 4).map(float),
)


def test_slots_busy_and_demand_by_site_and_in_all() -> None:
    size = size_of({"mu": MU, "tacc": TACC})
    assert size["pool_slots", "mu"] == 8 and size["pool_busy", "mu"] == 5
    assert size["pool_demand", "mu"] == 7  # five run, two wait
    assert [size[m, ""] for m in ("pool_slots", "pool_busy", "pool_demand")] == [12, 5, 7]


def test_where_no_schedd_tells_there_is_no_demand_in_all() -> None:
    size = size_of({"mu": MU, "tacc": SitePool("tacc", NOW, slots=4)})
    assert ("pool_demand", "tacc") not in size and ("pool_demand", "") not in size
    assert size["pool_slots", ""] == 12
    assert size_of({}) == {}


@settings(max_examples=25)
@given(st.lists(st.tuples(SIZES, st.integers(1, 90))))
def test_what_is_recorded_says_every_value_at_every_time(
    course: list[tuple[dict[tuple[str, str], float], int]],
) -> None:
    """A reader who takes the last record for the value is never wrong, nor kept waiting."""
    changes, now = PoolChanges(), NOW
    last: dict[tuple[str, str], tuple[float, float]] = {}
    ids: set[str] = set()
    for size, step in course:
        now += max(poolsize.EVERY_S, step)
        for m in changes.of(size, now):
            last[m.metric, m.subject] = (m.value, m.at)
            assert m.id not in ids
            ids.add(m.id)
        for key, value in size.items():
            assert last[key][0] == value and now - last[key][1] < SAME_S
        assert all(value == 0 for key, (value, _) in last.items() if key not in size)


class FakePool:
    def __init__(self, *answers: Mapping[str, SitePool] | AdonError) -> None:
        self.answers = list(answers)
        self.asked = threading.Event()
        self.closed = False

    def ask(self) -> Mapping[str, SitePool]:
        answer = self.answers.pop(0) if self.answers else AdonError("no more")
        self.asked.set()
        if isinstance(answer, AdonError):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def test_it_is_sampled_from_the_start_to_the_stop(tmp_path: Path) -> None:
    pool = FakePool({"mu": MU})
    with Archive(tmp_path / "a.sqlite") as archive:
        service = PoolSize(pool, Outbox(archive), lambda: NOW)
        service.start()
        assert pool.asked.wait(120)
        service.stop()
        assert pool.closed
        assert [m.value for m in archive.query("pool_slots", "mu")] == [8]
        assert [m.value for m in archive.query("pool_demand", "")] == [7]


def test_a_pool_that_does_not_answer_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    pool = FakePool(AdonError("gone"), AdonError("gone"), {"mu": MU}, {"mu": MU})
    with Archive(":memory:") as archive:
        service = PoolSize(pool, Outbox(archive), lambda: NOW)
        assert [service.sample() for _ in range(4)] == [False, False, True, True]
    assert [r.getMessage() for r in caplog.records] == [
        "the size of the pool is not recorded: gone",
        "the size of the pool is recorded again",
    ]


def asker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> ResidentPool:
    """A pool that is asked by ``program`` in place of HTCondor's bindings."""
    script = tmp_path / "asked.py"
    script.write_text(program, encoding="utf-8")
    monkeypatch.setattr(poolsize, "ASK", [sys.executable, str(script)])
    monkeypatch.setattr(poolsize, "_ANSWER_S", 300.0)  # of a busy machine
    return ResidentPool()


ONE = '{"mu": {"site": "mu", "at": 1.0, "slots": 8, "idle_slots": 3, "ahead": 2.0}}'


def test_one_process_is_asked_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"import sys\nfor n, _ in enumerate(sys.stdin):\n    print('{ONE}', flush=True)\n"
    pool = asker(tmp_path, monkeypatch, program)
    assert pool.ask()["mu"].slots == 8
    first = pool._process
    assert pool.ask()["mu"].ahead == 2.0
    assert pool._process is first
    pool.close()
    assert first is not None and first.returncode is not None
    with pytest.raises(AdonError, match="no longer read"):
        pool.ask()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import sys\nsys.stdin.readline()\nprint('!no collector', flush=True)", "no collector"),
        ("raise SystemExit(1)", "did not answer"),
        ("import sys\nsys.stdin.readline()\nprint('[]', flush=True)", "did not answer"),
        ("import sys\nsys.stdin.readline()\nprint('x' * 9, flush=True)", "did not answer"),
    ],
)
def test_whatever_goes_wrong_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    pool = asker(tmp_path, monkeypatch, program)
    with pytest.raises(AdonError, match=why) as caught:
        pool.ask()
    assert "\n" not in str(caught.value)
    assert pool._process is None
    pool.close()


def test_closing_lets_go_of_who_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = tmp_path / "heard"
    program = (
        "import pathlib, sys, time\nsys.stdin.readline()\n"
        f"pathlib.Path({str(heard)!r}).touch()\ntime.sleep(600)\n"
    )
    pool = asker(tmp_path, monkeypatch, program)
    said: list[str] = []

    def waits() -> None:
        try:
            pool.ask()
        except AdonError as error:
            said.append(str(error))

    thread = threading.Thread(target=waits)
    thread.start()
    until(heard.exists, "the question")
    pool.close()
    thread.join(120)
    assert not thread.is_alive() and len(said) == 1


def test_a_fault_does_not_end_the_sampling(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(poolsize, "_REST_S", 0.01)
    again = threading.Event()

    class Faulty:
        asked = 0

        def ask(self) -> Mapping[str, SitePool]:
            self.asked += 1
            if self.asked > 1:
                again.set()
            raise RuntimeError("a fault of ours")

        def close(self) -> None:
            pass

    size = PoolSize(Faulty(), Outbox(Archive(":memory:")), lambda: NOW)
    size.start()
    assert again.wait(120.0)
    size.stop()
    assert "a fault of ours" in caplog.text
