"""The watcher between an event log, a schedd and a broker, any of which may be away; and what jobs
send back."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack
from subprocess import PIPE, Popen
from typing import Any

import pytest
from broker_model import BrokerModel
from hypothesis import given
from hypothesis import strategies as st
from transfers_world import AD, JOB, FakeEvents, FakeSchedd, event, move

from condor_plugins.jobs.request_builder import Run
from condor_plugins.transfers.access_point import AccessPoint, open_ports
from condor_plugins.transfers.decide import OutputHistory, QueuedJob
from condor_plugins.transfers.run_state import RunEvent, RunState
from condor_plugins.urls.sources import UrlPath, written
from monitors.watcher.watcher import Watcher
from monitors.workflows.logs.events import Kind
from monitors.workflows.logs.events import TransferStep as Step
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import TransitRequest, TransitState
from network_provisioner.client.hookconfig import HookConfig

CONFIG = HookConfig("http://127.0.0.1:1", site="local", sources={"https://x/": "mu"})
RUN = Run(JOB, 1)
IN, OUT = RUN.transit("in"), RUN.transit("out")
REQUEST = TransitRequest(IN, "local", "tacc", 1000)
TOLD: dict[str, Any] = {"AdonInState": "installed", "AdonInTold": True}


class World:
    """A watcher and all it looks at; ``now`` is its clock, in Unix seconds."""

    def __init__(self) -> None:
        self.broker, self.schedd, self.events = BrokerModel(), FakeSchedd(), FakeEvents()
        self.now, self.passed = 100.0, 0.0
        self.schedd.queue[JOB] = QueuedJob(2, 1)
        self.shadows: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}
        self.watcher = self.new()

    def new(self) -> Watcher:
        return Watcher(
            AccessPoint(
                CONFIG, self.schedd, self.events, lambda: self.now, lambda _jobs: self.shadows
            ),
            lambda _config: self.broker, lambda: self.passed,
        )  # fmt: skip

    def observe(self, *happened: RunEvent, later: float = 5.0) -> None:
        self.now += later
        self.passed += abs(later)
        self.events.new += happened
        self.watcher.step()


@pytest.fixture
def world() -> World:
    return World()


def test_input_goes_back_when_the_job_runs_and_output_is_asked_for(world: World) -> None:
    world.broker.ask([REQUEST])
    world.observe(move(Step.IN_STARTED, 101, **TOLD))
    assert world.broker.live() == [IN]
    world.observe(move(Step.IN_FINISHED, 103, **TOLD), event(Kind.EXECUTE, 103, **TOLD))
    assert world.broker.released == [(IN, 1000, 2.0, "success")]
    world.observe(move(Step.OUT_STARTED, 110, DiskUsage=10, **TOLD))
    assert world.broker.live() == [OUT]
    assert (
        world.broker.transits[OUT].request.src,
        world.broker.transits[OUT].request.size_bytes,
    ) == (
        "tacc",
        10240,
    )
    world.now = 107.5
    world.observe(move(Step.OUT_FINISHED, 112, **TOLD))
    assert world.broker.live() == [OUT]
    world.observe(event(Kind.TERMINATED, 112, SentBytes=9000.0, **TOLD))
    assert world.broker.released[1:] == [(OUT, 9000, 2.0, "success")]
    # The next of its kind is known by what this one sent.
    world.schedd.queue[JOB] = QueuedJob(2, 2)
    world.observe(move(Step.OUT_STARTED, 120, 2, DiskUsage=10, **TOLD))
    assert world.broker.transits[Run(JOB, 2).transit("out")].request.size_bytes == 9000


def test_whose_packets_are_whose_is_said_as_shadows_open_connections(world: World) -> None:
    world.broker.ask([REQUEST])
    world.observe(move(Step.IN_STARTED, 105, **TOLD))
    assert world.broker.transits[IN].request.flows == ()  # its two hosts are the finest
    world.shadows[12, 0] = ((9618, 40001),)
    world.observe(later=0.5)  # soon, and not at the next sweep
    assert world.broker.transits[IN].request.flows == (Flow("tcp", (9618, 9618), (40001, 40001)),)
    world.shadows[12, 0] = ((9618, 40001), (9618, 40002))
    world.observe()
    world.observe()
    assert [f.dst_ports[0] for f in world.broker.transits[IN].request.flows] == [40001, 40002]
    assert [call for call, _ in world.broker.calls].count("flows") == 2  # not what is known
    world.observe(move(Step.IN_FINISHED, 120, **TOLD), event(Kind.EXECUTE, 120, **TOLD))
    world.observe(move(Step.OUT_STARTED, 130, DiskUsage=10, **TOLD))
    world.observe()
    assert world.broker.transits[OUT].request.flows[0] == Flow("tcp", (40001, 40001), (9618, 9618))


def run(world: World, starts: int, at: float, ran_s: float, sent_s: float) -> list[str]:
    """A run that begins at ``at``; the paths it has just before it sends its output."""
    world.schedd.queue[JOB] = QueuedJob(2, starts)
    world.now = at
    world.observe(event(Kind.EXECUTE, at, starts, **TOLD), later=0.0)
    world.observe(later=ran_s - 1)
    held = world.broker.live()
    end = at + ran_s + sent_s
    sent = [move(Step.OUT_STARTED, at + ran_s, starts), move(Step.OUT_FINISHED, end, starts)]
    world.observe(*sent, event(Kind.TERMINATED, end, starts, SentBytes=9e6), later=1 + sent_s)
    world.observe()
    return held


def test_output_that_is_too_quick_to_be_asked_for_has_its_path_before(world: World) -> None:
    first, second, third = (Run(JOB, starts).transit("out") for starts in (1, 2, 3))
    assert run(world, 1, 1000, 60.0, 0.2) == []
    assert world.broker.transits[first].state is TransitState.BEST_EFFORT
    # What it will send, and when, is known by what its like did.
    assert run(world, 2, 2000, 60.0, 0.2) == [second]
    got = world.broker.transits[second]
    assert (got.request.src, got.request.size_bytes, got.state) == (
        "tacc",
        9000000,
        TransitState.RELEASED,
    )
    assert world.broker.released[-1] == (second, 9000000, pytest.approx(0.2), "success")
    world.schedd.queue[JOB] = QueuedJob(2, 3)
    world.now = 3000
    world.observe(event(Kind.EXECUTE, 3000, 3, **TOLD))
    assert world.broker.live() == []  # it runs for a minute
    world.observe(later=55.0)
    assert world.broker.live() == [third]
    world.observe(event(Kind.DISCONNECTED, 3062, 3))
    assert world.broker.released[-1] == (third, 0, 0.0, "broken off")


def test_slow_output_is_asked_for_when_it_is_sent(world: World) -> None:
    assert run(world, 1, 1000, 2.0, 30.0) == []
    assert run(world, 2, 2000, 2.0, 30.0) == []


def test_between_events_it_looks_every_few_seconds(world: World) -> None:
    world.observe()
    world.broker.ask([REQUEST])
    world.schedd.queue.clear()
    world.observe(later=1.0)
    assert world.broker.live() == [IN]
    world.observe(later=3.0)
    assert world.broker.released == [(IN, 0, 0.0, "gone")]


def test_a_clock_that_jumps_puts_nothing_off(world: World) -> None:
    world.observe()
    world.broker.ask([REQUEST])
    world.schedd.queue.clear()
    world.observe(later=-5000.0)
    assert world.broker.live() == []


@pytest.mark.parametrize("who", ["broker", "schedd", "watcher"])
def test_who_was_away_is_waited_for(world: World, who: str) -> None:
    world.broker.ask([REQUEST])
    world.observe(move(Step.IN_STARTED, 101, **TOLD))
    away = getattr(world, who)
    away.away = True
    gone = event(Kind.ABORTED, 106, **TOLD)
    if who == "watcher":
        world.watcher = world.new()
        world.observe(gone)
    else:
        world.observe(gone)
        away.away = False
        world.observe()
    assert world.broker.released == [(IN, 0, 0.0, "removed")]


def test_a_schedd_that_is_away_is_no_reason_to_end_anything(world: World) -> None:
    world.broker.ask([REQUEST])
    world.schedd.queue.clear()
    world.schedd.away = True
    world.observe()
    assert world.broker.live() == [IN]


def test_what_happens_while_the_schedd_is_asked_is_told_by_the_events(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends between the look at the events and the schedd's answer."""
    world.broker.ask([REQUEST])
    world.observe(move(Step.IN_STARTED, 101, **TOLD))

    def jobs(_names: object) -> dict[str, QueuedJob]:
        world.events.new += [
            move(Step.IN_FINISHED, 103, **TOLD),
            event(Kind.EXECUTE, 103, **TOLD),
            event(Kind.TERMINATED, 104, SentBytes=0.0, **TOLD),
        ]
        return {}

    monkeypatch.setattr(world.schedd, "jobs", jobs)
    world.observe()
    assert world.broker.released == [(IN, 1000, 2.0, "success")]


def test_the_broker_is_told_why_there_was_no_path(world: World) -> None:
    why: dict[str, Any] = {
        "AdonInState": "unasked",
        "AdonInTold": False,
        "AdonInReason": "best effort: nobody",
    }
    world.broker.away = True
    world.observe(move(Step.IN_STARTED, 101, AdonInBytes=7, **why))
    world.broker.away = False
    world.observe()
    transit = world.broker.transits[IN]
    assert (transit.state, transit.reason, transit.request.size_bytes) == (
        TransitState.BEST_EFFORT,
        "best effort: nobody",
        7,
    )
    silent = event(Kind.FILE_TRANSFER, 120, 2, Step.IN_STARTED)
    world.observe(silent)
    assert "did not answer" in world.broker.transits[Run(JOB, 2).transit("in")].reason


def test_what_best_effort_reached_is_told_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"AdonInState": "best_effort", "AdonInTold": True, "AdonInBytes": 500, "AdonInId": IN}
    said: dict[str, Any] = words
    world.broker.ask([TransitRequest(IN, "local", "tacc", best_effort="too small")])
    calls: list[str] = []
    release = world.broker.release

    def count(transit_id: str, *more: Any) -> Any:
        calls.append(transit_id)
        return release(transit_id, *more)

    monkeypatch.setattr(world.broker, "release", count)
    moved = [
        move(Step.IN_STARTED, 101, **said),
        move(Step.IN_FINISHED, 103, **said),
    ]
    world.observe(*moved)
    assert calls == []
    world.observe(event(Kind.EXECUTE, 103, **said))
    world.observe(move(Step.OUT_STARTED, 110, **said), move(Step.OUT_FINISHED, 111, **said))
    world.observe(event(Kind.TERMINATED, 111, SentBytes=9.0, **said))
    assert (world.broker.transits[IN].usage.bytes, world.broker.transits[IN].usage.seconds) == (
        500,
        2.0,
    )
    world.observe()
    assert calls == [IN, OUT]
    # Of that, short as it was, nobody had asked.
    short = world.broker.transits[OUT]
    assert (short.state, short.usage.bytes, short.usage.seconds) == (
        TransitState.BEST_EFFORT,
        9,
        1.0,
    )
    assert "before a path could be asked for" in short.reason


URL = RUN.transit("in", "mu")
FETCHED = {**TOLD, "AdonInBytes": 1000, "AdonInId": IN,
           "AdonUrlPaths": written([UrlPath(URL, "mu", 5000, "x", 8e6)])}  # fmt: skip


def history(n_bytes: int, seconds: float) -> dict[str, Any]:
    file = {"TransferUrl": "https://x/a", "TransferTotalBytes": n_bytes,
            "TransferStartTime": 100, "TransferEndTime": 100 + seconds}  # fmt: skip
    return {
        "InputPluginResultList": [file],
        "InputPluginInvocations": [{"DurationInSeconds": seconds}],
    }


def test_what_was_fetched_by_url_is_told_as_the_history_has_it(world: World) -> None:
    world.broker.ask([REQUEST, TransitRequest(URL, "mu", "tacc", 5000)])
    world.observe(move(Step.IN_STARTED, 101, **FETCHED))
    assert world.broker.live() == [IN, URL]
    world.observe(move(Step.IN_FINISHED, 119, **FETCHED), event(Kind.EXECUTE, 119, **FETCHED))
    # Both are free at once; how long each took is not known yet.
    assert world.broker.released == [(IN, 0, 0.0, "success"), (URL, 0, 0.0, "success")]
    world.schedd.history[RUN] = history(5_000_000, 10)
    world.observe()
    transits = {name: world.broker.transits[name] for name in (IN, URL)}
    assert (transits[URL].usage.bytes, transits[URL].usage.seconds, transits[URL].reason) == (
        5_000_000,
        10.0,
        "",
    )
    assert (transits[IN].usage.bytes, transits[IN].usage.seconds) == (1000, 8.0)
    calls = len(world.broker.calls)
    world.observe()
    assert [call for call, _ in world.broker.calls[calls:]] == ["list"] * 4


def test_what_was_slow_says_why(world: World) -> None:
    world.broker.ask([TransitRequest(URL, "mu", "tacc", 5000)])
    world.schedd.history[RUN], world.schedd.disk_is_slow = history(1_000_000, 10), True
    world.observe(event(Kind.EXECUTE, 119, **FETCHED))
    assert world.broker.transits[URL].reason == (
        "slow: disk of the slot (800 kb/s of 8 Mb/s granted)"
    )
    assert world.broker.transits[URL].usage.outcome == "success"


def test_a_history_that_tells_nothing_is_left_in_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[object] = []
    monkeypatch.setattr(world.schedd, "input_history", lambda runs: queries.append(runs) or {})
    world.observe(event(Kind.EXECUTE, 119, **FETCHED))
    for _ in range(50):
        world.observe()
    assert len(queries) == 20


@pytest.mark.parametrize(("own", "usage"), [("none", (5000, 3.0)), ("installed", (0, 0.0))])
def test_of_common_files_the_history_tells_nothing(
    world: World, own: str, usage: tuple[int, float]
) -> None:
    run = Run(f"{JOB}.common1000", 1)
    name = run.transit("in", "mu")
    attributes = {"ProcId": -1000, "AdonInState": own, "AdonInTold": True,
             "AdonUrlPaths": written([UrlPath(name, "mu", 5000, "x")])}  # fmt: skip
    ad = {**AD, **attributes}
    world.broker.ask([TransitRequest(name, "mu", "tacc", 5000)])
    world.observe(
        RunEvent(Kind.COMMON_FILES, run.job, 1, 101, Step.IN_STARTED, ad),
        RunEvent(Kind.COMMON_FILES, run.job, 1, 104, Step.IN_FINISHED, ad),
    )
    assert world.broker.released == [(name, *usage, "success")]


def test_the_broker_is_told_of_urls_that_had_no_path(world: World) -> None:
    why = {"AdonInState": "none", "AdonInTold": False, "AdonInReason": "best effort: nobody"}
    world.observe(move(Step.IN_STARTED, 101, **{**FETCHED, **why}))
    transit = world.broker.transits[URL]
    assert (transit.request.src, transit.state, transit.reason, transit.request.size_bytes) == (
        "mu", TransitState.BEST_EFFORT, "best effort: nobody", 5000,
    )  # fmt: skip
    assert IN not in world.broker.transits


def test_the_shadows_ports_are_not_those_of_what_the_slot_fetches(world: World) -> None:
    world.broker.ask([TransitRequest(URL, "mu", "tacc", 5000)])
    world.shadows[12, 0] = ((9618, 40001),)
    world.observe(move(Step.IN_STARTED, 105, **FETCHED))
    assert world.broker.transits[URL].request.flows == ()


def test_shadows_are_told_from_processes_of_any_name() -> None:
    """One that takes a name, connects and says its own port."""
    program = (
        "import socket, sys\n"
        "open('/proc/self/comm', 'wb').write(bytes.fromhex(sys.argv[1]))\n"
        "connection = socket.create_connection(('127.0.0.1', int(sys.argv[2])))\n"
        "print(connection.getsockname()[1], flush=True)\n"
        "sys.stdin.read()\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as held:
        port, own = server.getsockname()[1], []
        for name in (b"condor_shadow", b"l\xc3\xa4nger\xc3"):
            words = [sys.executable, "-c", program, name.hex(), str(port), "7.0"]
            process = Popen(words, stdin=PIPE, stdout=PIPE, text=True)
            held.callback(process.communicate)
            assert process.stdout
            own.append(int(process.stdout.readline()))
        assert open_ports({(7, 0)}) == {(7, 0): ((own[0], port),)}


def test_jobs_of_no_concern_are_left_alone(world: World) -> None:
    world.observe(move(Step.OUT_STARTED, 101, pegasus_wf_xformation="pegasus::transfer"))
    world.observe(move(Step.OUT_STARTED, 102, MachineAttrAdonSite0="local"))
    assert world.broker.transits == {}


def test_what_the_schedd_leaves_out_is_not_forgotten(world: World) -> None:
    world.broker.ask([REQUEST])
    world.observe(move(Step.IN_STARTED, 101, **TOLD), event(Kind.DISCONNECTED, 102))
    world.observe(event(Kind.EVICTED, 103))
    assert world.broker.released == [(IN, 0, 0.0, "broken off")]
    assert set(world.broker.transits) == {IN}


def test_slots_without_a_site_are_named_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for at in (101, 102):
        sent = move(Step.IN_STARTED, at, MachineAttrAdonSite0="", RemoteHost="slot1_2@node7")
        world.observe(sent)
    assert [r.message for r in caplog.records] == [
        "node7: names no site, expected AdonSite or PegasusSite in STARTD_ATTRS"
    ]


def test_one_refusal_stands_in_nobodys_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = f"condor:{JOB.replace('12.0', '13.0')}:in:1"
    world.broker.ask([REQUEST, TransitRequest(other, "local", "tacc")])
    world.schedd.queue.clear()
    release = world.broker.release

    def refuse(transit_id: str, *more: Any, **words: Any) -> Any:
        if transit_id == IN:
            raise BrokerError("not yours", "forbidden")
        return release(transit_id, *more, **words)

    monkeypatch.setattr(world.broker, "release", refuse)
    world.observe()
    assert world.broker.live() == [IN]


steps = st.lists(
    st.tuples(
        st.sampled_from(["hook", "look", "event", "rerun", "crash", "broker", "schedd"]),
        st.sampled_from(Step),
    ),
    max_size=30,
)


@given(steps)
def test_whatever_happens_a_job_that_ended_holds_nothing(
    script: list[tuple[str, Step]],
) -> None:
    world, starts = World(), 1
    for what, moving in script:
        if what == "hook" and not world.broker.away:
            world.broker.ask([TransitRequest(Run(JOB, starts).transit("in"), "local", "tacc", 5)])
        elif what == "rerun":
            starts += 1
            world.schedd.queue[JOB] = QueuedJob(2, starts)
        elif what == "crash":
            world.watcher = world.new()
        elif what in ("broker", "schedd"):
            away = getattr(world, what)
            away.away = not away.away
        world.observe(*([move(moving, world.now, starts)] if what == "event" else []), later=1.0)
    world.broker.away = world.schedd.away = False
    world.schedd.queue.clear()
    # What was asked for late is seen to be of no use at the next look.
    world.observe()
    world.observe()
    assert world.broker.live() == []


def test_output_is_expected_as_its_like_sent() -> None:
    outputs = OutputHistory()
    assert outputs.expected(AD) is None
    assert outputs.expected({**AD, "DiskUsage": 10, "AdonInBytes": 240}) == 10000
    for sent in (1, 5, 1000):
        outputs.learn(RunState(RUN, ad=AD, sent_bytes=sent))
    assert outputs.expected({**AD, "DiskUsage": 10}) == 5
    assert outputs.expected({**AD, "Owner": "bob"}) is None
    clusters = [
        {
            "pegasus_wf_xformation": "pegasus::seqexec",
            "DAGNodeName": f"merge_t-{name}-1_0_PID{n}_ID1",
        }
        for name, n in (("run", 1), ("run", 2), ("end", 1))
    ]
    outputs.learn(RunState(RUN, ad=clusters[0], sent_bytes=70))
    assert [outputs.expected(ad) for ad in clusters] == [70, 70, None]
    for number in range(1500):
        outputs.learn(RunState(RUN, ad={"Cmd": str(number)}, sent_bytes=1))
    assert outputs.expected(AD) is None
