"""Before a transfer: one request per site pair, never blocked, never failing, always on record."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hooks_world import WF_UUID, FakeBroker, journal, make_submit_dir, move

from network_provisioner.errors import BrokerError, InputError
from network_provisioner.model import Transit, TransitRequest, TransitState
from pegasus_hooks import prejob, submitdir
from pegasus_hooks.hookconfig import HookConfig
from pegasus_hooks.patience import Budget
from pegasus_hooks.prejob import Effects

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

        return Effects(self.broker, Budget(2.0), now, monotonic, self.sleep)


@pytest.fixture
def submit_dir(tmp_path: Path) -> Path:
    lists = {
        JOB: [move("f", "a", "mu", 100), move("g", "a", "mu", 50), move("h", "b", "mu")],
        "stage_in_remote_mu_0_0": [move("r", "mu", "mu", 9)],
    }
    return make_submit_dir(tmp_path / "run", lists, ["align_ID1"])


def decision(submit_dir: Path, job: str = JOB) -> dict[str, object]:
    return submitdir.read_json(submit_dir / "00/00" / f"{job}.adon.json")


def run(submit_dir: Path, world: World, retry: int = 0, job: str = JOB) -> list[dict[str, object]]:
    prejob.run(submit_dir, job, retry, CONFIG, world.effects())
    pairs = decision(submit_dir, job).get("pairs", [])
    assert isinstance(pairs, list)
    return pairs


def test_one_request_for_each_pair(submit_dir: Path) -> None:
    world = World(FakeBroker())
    first, second = run(submit_dir, world)
    asked = world.broker.asked
    assert [(r.id, r.src, r.dst, r.size_bytes) for r in asked] == [
        (ID, "a", "mu", 150),
        (f"{WF_UUID}:{JOB}:0:b-mu", "b", "mu", None),
    ]
    assert {(r.workflow, r.job, r.retry, r.template) for r in asked} == {(WF_UUID, JOB, 0, "soykb")}
    assert (first["state"], first["path"], first["granted_bps"]) == (
        "installed", ["a", "s1", "b"], 1e8,
    )  # fmt: skip
    assert second["files"] == 1
    lines = journal(submit_dir)
    assert [(x["event"], x["hook"], x["id"]) for x in lines] == [
        ("decision", "pre", r.id) for r in asked
    ]


def test_sizes_of_intermediate_files_come_from_the_journal(submit_dir: Path) -> None:
    submitdir.append_lines(submit_dir / submitdir.SIZE_JOURNAL, [{"lfn": "h", "bytes": 77}])
    world = World(FakeBroker())
    run(submit_dir, world)
    assert [r.size_bytes for r in world.broker.asked] == [150, 77]


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
    assert submitdir.warnings(submit_dir)[0].startswith(f"{JOB}: a to mu: best effort")


def test_a_budget_ends_a_call_that_never_ends() -> None:
    budget = Budget(0.05)
    with pytest.raises(BrokerError, match=r"did not answer within 0\.05 s") as caught:
        budget.call(lambda: time.sleep(30))
    assert caught.value.code == "timeout"
    with pytest.raises(BrokerError):
        budget.call(lambda: None)  # used up: not even tried
    assert budget.left_s <= 0


def test_a_queued_transit_is_followed_until_it_has_a_path(submit_dir: Path) -> None:
    broker = FakeBroker(
        TransitState.QUEUED, TransitState.QUEUED, TransitState.HELD, TransitState.INSTALLED
    )
    world = World(broker)
    first, _ = run(submit_dir, world)
    assert first["state"] == "installed"
    assert first["waited_s"] == sum(world.slept) == pytest.approx(0.25 + 0.5 + 1.0)
    assert len({r.id for r in broker.asked[:4]}) == 1


def test_patience_ends_in_best_effort_and_leaves_the_queue(submit_dir: Path) -> None:
    world = World(FakeBroker(TransitState.QUEUED))
    first, second = run(submit_dir, world)
    assert first["state"] == second["state"] == "best_effort"
    assert "patience" in str(first["reason"])
    assert [(r[0], r[3]) for r in world.broker.released] == [
        (ID, "gave_up"), (f"{WF_UUID}:{JOB}:0:b-mu", "gave_up"),
    ]  # fmt: skip
    assert world.seconds == pytest.approx(2 * CONFIG.patience_s)


def test_a_lease_is_made_to_outlast_the_transfer(submit_dir: Path) -> None:
    broker = FakeBroker(granted_bps=1.0)  # 1,200 bits at 1 b/s, twice over, and a minute
    broker.lease_until = 1000.0 + 2 * 1200.0 + 59.0
    world = World(broker)
    run(submit_dir, world)
    assert broker.renewed == [(ID, 2 * 1200.0 + 60.0)]
    broker.renewed.clear()
    broker.lease_until += 1.0
    run(submit_dir, world)
    assert broker.renewed == []


def test_what_a_killed_hook_got_is_given_back_by_the_next_retry(submit_dir: Path) -> None:
    world = World(FakeBroker())
    run(submit_dir, world, retry=0)  # and DAGMan never ran POST
    pairs = run(submit_dir, world, retry=1)
    given = {r[0] for r in world.broker.released}
    assert given == {f"{WF_UUID}:{JOB}:0:a-mu", f"{WF_UUID}:{JOB}:0:b-mu"}
    assert {str(p["id"]) for p in pairs}.isdisjoint(given)


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


def test_the_same_hook_run_twice_keeps_its_transits(submit_dir: Path) -> None:
    world = World(FakeBroker())
    before = [p["id"] for p in run(submit_dir, world)]
    assert [p["id"] for p in run(submit_dir, world)] == before
    assert world.broker.released == []


def test_a_rescue_dag_asks_under_a_new_id(submit_dir: Path) -> None:
    world = World(FakeBroker())
    run(submit_dir, world)
    world.broker.ended = {r.id for r in world.broker.asked}
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


def test_a_list_that_cannot_be_read(submit_dir: Path) -> None:
    (submit_dir / "00/00" / f"{JOB}.in").write_text("[{]")
    with pytest.raises(InputError, match="expected a JSON transfer list"):
        run(submit_dir, World(FakeBroker()))


def test_a_job_that_the_dag_does_not_know(submit_dir: Path) -> None:
    with pytest.raises(InputError, match="no line 'JOB stage_in_local_mu_0 "):
        run(submit_dir, World(FakeBroker()), job="stage_in_local_mu_0")
