"""One workflow followed through every order of events, with hooks and a broker that come and go."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from broker_model import BrokerModel
from hypothesis import given
from hypothesis import strategies as st
from job_events import EventKind, happened
from made_transit import made_transit

from monitors.jobs.jobs import AnyEvent, DagEvent, Jobs
from monitors.watcher.actions import TransferResult, Watched
from monitors.watcher.connections import Connection
from monitors.watcher.decision_file import DecisionFile, Pair
from monitors.watcher.held_paths import HeldPaths
from monitors.watcher.pending import Later, PendingActions
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import SEEN, Transit, TransitRequest, TransitState
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import UNASKED, RequestOutcome, ids_of

JOB = "stage_in_local_tacc_0_0"
FILE = Path("/nowhere") / f"{JOB}.adon.json"
WATCHED = Watched("wf", Path("/nowhere"), HookConfig("http://b"))


@dataclass
class World:
    """A workflow of one job, its files, a broker and the time."""

    broker: BrokerModel = field(default_factory=BrokerModel)
    time: float = 1000.0
    said: list[AnyEvent] = field(default_factory=list)
    file: DecisionFile = field(default_factory=lambda: DecisionFile(FILE, JOB, 0, 0.0))
    changed: bool = False
    lines: list[Mapping[str, Any]] = field(default_factory=list)
    cluster: int = 0
    count: int = 0  # of what happened
    moved: int = 7
    client: str = ""  # of the pair
    open: set[Connection] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.pending = PendingActions(lambda _config: self.broker, self.clock)
        self.held = HeldPaths(
            watched=WATCHED,
            source=self,
            files=self,
            open_now=lambda workflow, job: self.open if (workflow, job) == ("wf", JOB) else set(),
            add=self.pending.add,
            journal=lambda _watched, lines: self.lines.extend(lines),
            clock=self.clock,
            now=self.clock,
        )

    def clock(self) -> float:
        return self.time

    def request(self, retry: int) -> TransitRequest:
        return TransitRequest(f"wf:{JOB}:{retry}:mu-tacc", "mu", "tacc")

    # -- a job's own files -------------------------------------------------------------------

    def measure(self, _watched: Watched, _decision: DecisionFile, _pair: Pair, /) -> TransferResult:
        return TransferResult(self.moved, 1.0, {"retries": 1})

    def requests_of(self, _watched: Watched, decision: DecisionFile, /) -> list[TransitRequest]:
        return [self.request(decision.retry)]

    # -- what the watcher sees ---------------------------------------------------------------

    def events(self) -> list[AnyEvent]:
        said, self.said = self.said, []
        return said

    def gone(self, now: float) -> list[DagEvent]:
        return []

    def decision_files(self) -> list[DecisionFile]:
        changed, self.changed = self.changed, False
        return [self.file] if changed else []

    def observe(self, seconds: float = 0.0) -> None:
        """Let time pass as the watcher's loop does."""
        end = self.time + seconds
        while True:
            self.held.observe()
            self.pending.work()
            if self.time >= end:
                return
            self.time = min(end, self.time + 1.0)

    # -- what happens ------------------------------------------------------------------------

    def write(self, papers: DecisionFile) -> None:
        self.file, self.changed = papers, True

    def pre(self, retry: int = 0, *, dies: str = "") -> None:
        """A PRE that dies ``early`` (before it asks), ``late`` (before it writes), or not."""
        self.tell(EventKind.PRE_STARTED)
        request = self.request(retry)
        left = () if self.file.given_back else (*self.file.left_over, *self.file.ids)
        left = tuple(sorted({*left} - {request.id}))
        pair = Pair(request.id, "mu", "tacc", UNASKED, client=self.client, far="192.0.2.1")
        draft = DecisionFile(FILE, JOB, retry, self.time, (pair,), left_over=left)
        self.write(draft)
        if dies == "early":
            return self.tell(EventKind.PRE_ENDED, code=-9)
        with suppress(BrokerError):
            for transit_id in left:
                self._release_all(transit_id, "abandoned")
            draft = replace(draft, left_over=())
        try:
            (answer,) = self.broker.ask([request])
            assert answer.transit is not None
            pair = replace(pair, id=answer.transit.id, state=str(answer.transit.state), told=True)
        except BrokerError as error:
            pair = replace(pair, reason=str(error))
        if dies == "late":
            return self.tell(EventKind.PRE_ENDED, code=-9)
        self.write(replace(draft, pairs=(pair,)))
        return self.tell(EventKind.PRE_ENDED, code=0)

    def _release_all(self, transit_id: str, outcome: str) -> None:
        """As the hooks do: under whatever number it was given."""
        for name in ids_of(transit_id):
            try:
                self.broker.release(name, outcome=outcome)
            except BrokerError as error:
                if error.code != "unknown_transit":
                    raise
                break

    def post(self) -> None:
        try:
            for transit_id in (*self.file.ids, *self.file.left_over):
                self._release_all(transit_id, "post")
        except BrokerError:
            return
        self.write(replace(self.file, given_back=True))

    def tell(self, what: EventKind, code: int | None = None) -> None:
        if what is EventKind.SUBMITTED:
            self.cluster += 1
        self.count += 1
        at = float(int(self.time))
        self.said.append(happened(what, at, JOB, code, self.cluster, nth=self.count))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return connected(World(), monkeypatch)


def connected(world: World, patch: pytest.MonkeyPatch) -> World:
    """A reader of the decision file sees the world's."""
    patch.setattr(DecisionFile, "read", classmethod(lambda _cls, _file: world.file))
    return world


def test_post_goes_first(world: World) -> None:
    world.pre()
    world.observe()
    world.tell(EventKind.SUBMITTED)
    world.tell(EventKind.ENDED, code=0)
    world.observe(3.0)
    world.post()
    world.observe(20.0)
    assert world.broker.transits[world.file.ids[0]].usage.outcome == "post"
    assert world.lines == []


def test_held_then_running_again(world: World) -> None:
    world.pre()
    world.tell(EventKind.SUBMITTED)
    world.tell(EventKind.RUNNING)
    world.tell(EventKind.HELD)
    world.observe(4.0)
    assert world.broker.live() == []
    world.tell(EventKind.UNHELD)
    world.observe(4.0)
    assert world.broker.live() == []  # it waits for a slot
    world.tell(EventKind.RUNNING)
    world.observe(1.0)
    again = f"wf:{JOB}:0:mu-tacc.2"
    assert world.broker.live() == [again]
    world.tell(EventKind.ENDED, code=0)
    world.observe(9.0)
    assert world.broker.live() == []
    assert world.broker.transits[again].usage.outcome == "success"


def test_a_transfer_that_meets_no_rule_gives_its_room_back_while_it_runs(world: World) -> None:
    world.broker.unmet = True
    world.pre()
    world.tell(EventKind.SUBMITTED)
    world.observe()
    assert world.broker.live() == list(world.file.ids)  # it waits for a slot
    world.tell(EventKind.RUNNING)
    world.observe()
    world.observe(6.0)
    assert world.broker.live() == []
    assert [line["event"] for line in world.lines] == ["given_back"]
    assert [call for call, _ in world.broker.calls].count("progress") == 1


@pytest.mark.parametrize(
    ("client", "ports_at", "expected"),
    [
        ("dst", SEEN, ("dst", "192.0.2.1")),
        ("src", SEEN, ("src", "192.0.2.2")),
        ("dst", "", ("", "")),
    ],
)
def test_connections_are_reported_where_the_broker_waits_for_them(
    client: str, ports_at: str, expected: tuple[str, str]
) -> None:
    hosts = ["192.0.2.1", "192.0.2.2"]
    given = made_transit("t", "mu", "tacc", TransitState.INSTALLED, hosts=hosts, ports_at=ports_at)
    answer = RequestOutcome("t", str(given.state), "", True, given)
    pair = Pair("t", "mu", "tacc", client=client).answered(answer)
    assert (pair.client, pair.far) == expected
    assert Pair.of(pair.as_json()) == pair


def seen(*ports: int, far: str = "192.0.2.1") -> set[Connection]:
    return {Connection((port, 80), far) for port in ports}


def fetching(world: World) -> str:
    """A job that fetches files itself, and whose connections are to be reported; its transit."""
    world.client = "dst"
    world.pre()
    transit = world.broker.transits[world.file.ids[0]]
    transit.request = replace(transit.request, ports_at=SEEN)
    world.tell(EventKind.SUBMITTED)
    world.tell(EventKind.RUNNING)
    return world.file.ids[0]


def test_connections_that_last_say_which_packets_are_meant(world: World) -> None:
    world.moved = 0
    name, transits = fetching(world), world.broker.transits

    def meant(*now: int) -> list[int]:
        world.open = seen(*now) | seen(9, far="192.0.2.2")
        world.observe(1.0)
        assert all(flow.src_ports == (80, 80) for flow in transits[name].request.flows)
        return [flow.dst_ports[0] for flow in transits[name].request.flows]

    assert meant() == [] and transits[name].request.ports_at == SEEN
    assert (meant(5), meant(5)) == ([], [5])  # at first it may be over soon
    assert (meant(5, 6), meant(5, 6), meant(6)) == ([5], [5, 6], [6])
    assert meant() == [6]  # between two files
    for port in range(20, 25):  # short ones: the two hosts are the finest, and that is said once
        assert meant(port) == ([6] if port == 20 else [])
    assert [call for call, _ in world.broker.calls].count("flows") == 4
    world.tell(EventKind.ENDED, code=0)
    world.observe(8.0)
    assert len(world.pending) == 0


def test_where_nobody_sees_connections_all_packets_are_meant_once_files_arrive(
    world: World,
) -> None:
    name = fetching(world)
    world.observe(1.0)
    assert (
        world.broker.transits[name].request.ports_at,
        world.broker.transits[name].request.flows,
    ) == ("", ())


def test_asking_again_is_dropped_where_the_job_ended_meanwhile(world: World) -> None:
    world.pre()
    world.tell(EventKind.SUBMITTED)
    world.tell(EventKind.HELD)
    world.observe(4.0)
    world.broker.away = True
    world.tell(EventKind.RUNNING)
    world.observe(4.0)
    world.tell(EventKind.REMOVED)
    world.broker.away = False
    world.observe(20.0)
    assert ("ask", f"wf:{JOB}:0:mu-tacc") not in world.broker.calls[1:]
    assert world.broker.live() == []


def test_a_killed_pre_that_got_another_number(world: World) -> None:
    base = f"wf:{JOB}:0:mu-tacc"
    world.broker.transits[base] = made_transit(base, "mu", "tacc", TransitState.RELEASED)
    world.pre(dies="late")
    assert world.broker.live() == [f"{base}.2"]
    world.observe(5.0)
    assert world.broker.live() == []


def test_the_broker_is_told_later_why_there_was_no_path(world: World) -> None:
    world.broker.away = True
    world.pre()
    world.observe(5.0)
    world.broker.away = False
    world.observe(5.0)
    (transit,) = world.broker.transits.values()
    assert (transit.state, transit.reason) == (TransitState.BEST_EFFORT, "away")
    assert [line["event"] for line in world.lines] == ["told"]


def test_an_answer_that_was_lost_is_left_alone_until_the_job_ends(world: World) -> None:
    world.pre()
    lost = replace(world.file.pairs[0], state=UNASKED, reason="timeout", told=False)
    world.write(replace(world.file, pairs=(lost,)))
    world.tell(EventKind.SUBMITTED)
    world.observe(5.0)
    assert world.broker.live() == [lost.id]
    world.tell(EventKind.ENDED, code=0)
    world.observe(9.0)
    assert world.broker.live() == []


def test_a_dag_that_ended_is_swept_and_finished(world: World) -> None:
    world.tell(EventKind.DAG_STARTED)
    world.pre()
    other = made_transit("wf:other:0:a-b", "a", "b", TransitState.INSTALLED)
    world.broker.transits[other.id] = other
    world.observe(5.0)
    assert not world.held.finished()
    world.tell(EventKind.DAG_ENDED, code=1)
    world.observe(9.0)
    assert world.broker.live() == []
    assert world.held.finished() and not world.pending.of("wf")


def test_what_a_rescue_leaves_is_swept_as_well(world: World) -> None:
    for code in (1, 0):
        world.tell(EventKind.DAG_STARTED)
        world.observe(1.0)
        left = made_transit("wf:other:0:a-b", "a", "b", TransitState.INSTALLED)
        world.broker.transits[left.id] = left
        world.tell(EventKind.DAG_ENDED, code=code)
        world.observe(9.0)
        assert world.broker.live() == []
        assert world.held.finished()


def test_a_dagman_that_stays_away_is_swept_and_finished(world: World) -> None:
    world.pre()
    world.tell(EventKind.SUBMITTED)
    world.tell(EventKind.RUNNING)
    world.tell(EventKind.DAG_GONE)
    ahead = made_transit("wf:other:0:a-b", "a", "b", TransitState.INSTALLED)
    world.broker.transits[ahead.id] = ahead
    world.observe(150.0)
    assert world.broker.live() == [*world.file.ids, ahead.id]
    world.tell(EventKind.ENDED, code=0)
    world.observe(10.0)
    assert world.broker.live() == []
    assert world.held.finished()


def test_a_listeners_trouble_is_its_own(world: World) -> None:
    class Failing:
        def on(self, jobs: Jobs, name: str, /) -> None:
            raise RuntimeError("oh")

        def tick(self, now: float, /) -> None:
            raise RuntimeError("oh")

    world.held.listener = Failing()
    world.pre()
    world.tell(EventKind.SUBMITTED)
    world.tell(EventKind.REMOVED)
    world.held.tick(0.0)
    world.observe(9.0)
    assert world.broker.live() == []


STEPS = st.sampled_from(
    ["pre", "pre early", "pre late", "submit", "run", "hold", "unhold", "evict", "post", "away",
     "back", "gone", "restart", "wait", "blink"]
)  # fmt: skip
END = st.sampled_from(["ended", "removed", "pre_failed", "dag", "held"])


@given(st.lists(STEPS, max_size=25), END, st.booleans())
def test_in_whatever_order_all_is_given_back_once(steps: list[str], end: str, post: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = connected(World(), patch)
        retry = 0
        for step in steps:
            world.time += 0.3
            if step.startswith("pre"):
                world.pre(retry, dies=step[4:])
                retry += step == "pre" or world.cluster % 2
            else:
                act(world, step)
        finish(world, end, retry, post)
        world.broker.away = False
        world.observe(11.0)
        assert world.broker.live() == []
        done = [line["id"] for line in world.lines if line["event"] == "given_back"]
        assert len(done) == len(set(done))
        world.tell(EventKind.DAG_STARTED)
        world.tell(EventKind.DAG_ENDED, code=0)
        world.observe(13.0)
        assert world.held.finished() and not len(world.pending)


def act(world: World, step: str) -> None:
    events = {
        "submit": EventKind.SUBMITTED, "run": EventKind.RUNNING, "hold": EventKind.HELD,
        "unhold": EventKind.UNHELD, "evict": EventKind.EVICTED, "gone": EventKind.DAG_GONE,
        "restart": EventKind.DAG_STARTED,
    }  # fmt: skip
    if step in events:
        world.tell(events[step])
    elif step == "post":
        world.post()
    elif step in ("away", "back"):
        world.broker.away = step == "away"
    else:
        world.observe(8.0 if step == "wait" else 0.0)


def finish(world: World, end: str, retry: int, post: bool) -> None:
    world.broker.away = False
    world.time += 1.0
    if end == "dag":
        world.tell(EventKind.DAG_STARTED)
        world.observe()
        world.tell(EventKind.DAG_ENDED, code=1)
        return
    world.pre(retry, dies="late" if end == "pre_failed" else "")
    world.observe()
    if end == "pre_failed":
        return
    world.tell(EventKind.SUBMITTED)
    world.tell(EventKind.RUNNING)
    world.observe()
    kind = {"ended": EventKind.ENDED, "removed": EventKind.REMOVED, "held": EventKind.HELD}[end]
    world.tell(kind, code=0 if end == "ended" else None)
    world.observe(1.0)
    if post and end != "held":
        world.post()


@dataclass
class FakeAction:
    key: str
    config: HookConfig
    owner: str = ""
    kept_s: float = 60.0
    done: int = 0

    def do(self, broker: BrokerClient, /) -> None:
        broker.get(self.key)
        self.done += 1


def test_an_action_at_one_broker_does_not_wait_for_another() -> None:
    away = BrokerModel(away=True)
    here = BrokerModel({"b": made_transit("b", "mu", "tacc", TransitState.INSTALLED)})
    now = [0.0]
    pending = PendingActions(
        lambda config: away if config.broker == "http://a" else here, lambda: now[0]
    )
    first, second = (FakeAction(name, HookConfig(f"http://{name}")) for name in "ab")
    for action in (first, first, second):
        pending.add(action)
    pending.work()
    assert (first.done, second.done, len(pending)) == (0, 1, 1)
    away.away, away.transits = False, here.transits | {"a": here.transits["b"]}
    pending.work()
    assert first.done == 0  # not asked again at once
    now[0] += 2.0
    pending.work()
    assert (first.done, len(pending)) == (1, 0)


def test_what_is_due_longest_comes_first_however_slow_the_broker() -> None:
    """Reports that are due again and again keep nobody from giving back."""
    now = [0.0]

    class Slow(BrokerModel):
        def get(self, transit_id: str, /) -> Transit:
            now[0] += 1.0
            return made_transit(transit_id, "mu", "tacc", TransitState.INSTALLED)

    class Repeated(FakeAction):
        def do(self, broker: BrokerClient, /) -> None:
            super().do(broker)
            raise Later(0.5)

    pending = PendingActions(lambda _config: Slow(), lambda: now[0])
    last = FakeAction("last", HookConfig("http://a"))
    for action in (*(Repeated(f"report {n}", HookConfig("http://a")) for n in range(9)), last):
        pending.add(action)
    for _ in range(4):
        pending.work()
    assert last.done == 1


def test_a_broker_that_answers_does_not_wait_for_one_that_takes_long_to_be_away() -> None:
    now = [0.0]

    class Away(BrokerModel):
        def get(self, transit_id: str, /) -> Transit:
            now[0] += 5.0
            raise BrokerError("no answer", "timeout")

    away, here = Away(), BrokerModel({"x": made_transit("x", "mu", "tacc", TransitState.INSTALLED)})
    pending = PendingActions(
        lambda config: away if config.broker == "http://a" else here, lambda: now[0]
    )
    for name in "abc":
        pending.add(FakeAction(name, HookConfig("http://a")))
    last = FakeAction("x", HookConfig("http://x"))
    pending.add(last)
    for _ in range(3):
        pending.work()
        now[0] += 3.0  # the next look
    assert last.done == 1
