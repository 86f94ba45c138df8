"""What an agent is made of: spool, clock, pending assignments, limits, answers, settings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from generated import any_json
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from monitors.base.measurement import Measurement
from monitors.measurements.agent import broker_link
from monitors.measurements.agent.assignments import LEAD_S, BrokerClock, PendingAssignments, refusal
from monitors.measurements.agent.host_reports import (
    Ends,
    SocketCounters,
    SocketReporter,
    parse_ss,
)
from monitors.measurements.agent.messages import Assignment, Result
from monitors.measurements.agent.settings import AgentLimits, settings_from_dict
from monitors.measurements.agent.spool import MOST_RESULT_BYTES, Spool
from monitors.measurements.probes.tools import TOOLS
from network_provisioner.base.errors import BrokerError, InputError

TOKEN = "a-token-of-some-length"


def assignment(key: str = "a", at: float = 100.0, duration_s: float = 10.0, **more: Any) -> Any:
    plain: dict[str, Any] = {"tool": "host", "role": "alone", "subject": "mu"}
    return Assignment(id=key, task="t", at=at, duration_s=duration_s, **{**plain, **more})


def result(key: str, error: str = "") -> Result:
    return Result(key, "t", 1.0, 2.0, error=error)


# -- the spool -----------------------------------------------------------------------------------


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path)
    yield opened
    opened.close()


def told(spool: Spool) -> dict[str, str]:
    return {key: json.loads(text)["error"] for key, text in spool.waiting(10**6, 10**9)}


def test_what_was_taken_is_not_sent_again_but_remembered_for_a_while(tmp_path: Path) -> None:
    first = Spool(tmp_path)
    first.end(result("a"), 110.0)
    first.taken(["a", "unheard of"])
    assert first.unsent() == 0
    first.close()
    second = Spool(tmp_path)
    assert told(second) == {}
    assert dict(second.known()) == {"a": 110.0}
    second.forget(100.0)
    assert dict(second.known()) == {"a": 110.0}
    second.forget(111.0)
    assert second.known() == []
    second.close()
    assert not list(tmp_path.glob("*.run"))


def test_only_one_agent_has_a_state(spool: Spool, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="used by another agent"):
        Spool(tmp_path)


def test_a_state_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a directory"):
        Spool(tmp_path / "file")


def test_too_many_results_push_the_oldest_out(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most=3)
    for number in range(5):
        spool.end(result(str(number)), 1.0)
    assert list(told(spool)) == ["2", "3", "4"]
    assert spool.dropped == 2
    spool.close()
    again = Spool(tmp_path, most_bytes=2 * len(json.dumps(result("0").as_dict())))
    assert list(told(again)) == ["3", "4"]
    again.close()


def test_a_result_that_no_broker_takes_says_so_in_place_of_what_was_measured(
    spool: Spool, tmp_path: Path
) -> None:
    large = Measurement(
        "rtt:a", "rtt", "mu", 1.0, "s", 1.0, "agent:mu", details={"x": "x" * MOST_RESULT_BYTES}
    )
    spool.end(replace(result("a"), measurements=(large,)), 1.0)
    ((key, body),) = spool.waiting(1, 1)
    sent = json.loads(body)
    assert len(body) < 1000 and (key, sent["measurements"]) == ("a", [])
    assert f"expected at most {MOST_RESULT_BYTES}" in sent["error"]


def test_a_batch_is_bounded_and_never_empty(spool: Spool) -> None:
    for number in range(5):
        spool.end(result(str(number)), 1.0)
    assert [key for key, _ in spool.waiting(2, 10**6)] == ["0", "1"]
    assert [key for key, _ in spool.waiting(5, 1)] == ["0"]


def test_a_disk_that_takes_nothing_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path / "state")
    for file in (tmp_path / "state").iterdir():
        file.unlink()
    (tmp_path / "state").rmdir()
    spool.end(result("a"), 1.0)
    spool.end(result("b"), 1.0)
    assert list(told(spool)) == ["a", "b"]
    assert len([r for r in caplog.records if "in memory alone" in r.getMessage()]) == 1
    spool.close()


@given(garbage=st.binary(max_size=200), cut=st.integers(0, 400))
def test_torn_and_garbled_files_spoil_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    first = Spool(folder)
    first.end(result("good"), 1.0)
    good = set(folder.glob("*.run"))
    first.end(result("torn"), 1.0)
    (torn,) = set(folder.glob("*.run")) - good
    first.close()
    torn.write_bytes(torn.read_bytes()[:cut])
    (folder / f"{'a' * 40}.run").write_bytes(garbage)
    (folder / f"{'b' * 40}.new").write_bytes(garbage)
    foreign = [folder / "garbage.run", folder / "draft.new"]
    for file in foreign:
        file.write_bytes(garbage)
    second = Spool(folder)
    assert set(told(second)) - {"torn"} == {"good"}
    assert list(folder.glob("*.new")) == [folder / "draft.new"]
    assert [file.read_bytes() for file in foreign] == [garbage, garbage]
    second.close()


class SpoolLife(RuleBasedStateMachine):
    """Runs begin, end, are taken, and the agent is killed in between: every run is told exactly as
    long as the broker has not taken it."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        import tempfile  # noqa: PLC0415

        self.folder = tempfile.TemporaryDirectory()
        self.spool = Spool(Path(self.folder.name))
        self.begun: set[str] = set()
        self.ended: dict[str, str] = {}
        self.taken: set[str] = set()

    @rule(target=keys, number=st.integers(0, 8))
    def begin(self, number: int) -> str:
        key = str(number)
        if key not in self.begun | set(self.ended) | self.taken:
            self.spool.begin(assignment(key), 1.0)
            self.begun.add(key)
        return key

    @rule(key=keys)
    def end(self, key: str) -> None:
        if key in self.begun:
            self.spool.end(result(key, "done"), 1.0)
            self.begun.remove(key)
            self.ended[key] = "done"

    @rule(key=keys)
    def take(self, key: str) -> None:
        self.spool.taken([key])
        if self.ended.pop(key, None) is not None:
            self.taken.add(key)

    @rule()
    def kill(self) -> None:
        self.spool.close()
        self.spool = Spool(Path(self.folder.name))
        self.ended |= dict.fromkeys(self.begun, "the agent was killed while it measured")
        self.begun = set()

    @invariant()
    def tells_all_and_only_that(self) -> None:
        assert told(self.spool) == self.ended
        assert {key for key, _ in self.spool.known()} == self.begun | set(self.ended) | self.taken

    def teardown(self) -> None:
        self.spool.close()
        self.folder.cleanup()


TestSpoolLife = SpoolLife.TestCase
TestSpoolLife.settings = settings(max_examples=40, stateful_step_count=20)  # each writes files


# -- the broker's clock --------------------------------------------------------------------------


@given(
    true_s=st.floats(-1e9, 1e9),
    trips=st.lists(
        st.tuples(st.floats(0, 2), st.floats(0, 30), st.floats(0, 2), st.floats(0, 100)),
        min_size=1, max_size=20,
    ),
)  # fmt: skip
def test_the_brokers_time_is_within_the_error_that_is_named(
    true_s: float, trips: list[tuple[float, float, float, float]]
) -> None:
    clock, steady = BrokerClock(), 1000.0
    for there, stay, back, pause in trips:
        asked_at = steady
        received, answered = asked_at + there, asked_at + there + stay + back
        clock.learn(asked_at, received + true_s, received + stay + true_s, answered)
        steady = answered + pause
        off = abs(clock.now(steady) - (steady + true_s))
        assert off <= clock.error_s(steady) + 1e-5
        assert clock.steady_at(clock.now(steady)) == pytest.approx(steady, abs=1e-5)


def test_a_better_answer_counts_more_than_a_later_one() -> None:
    clock = BrokerClock()
    clock.learn(0.0, 50.01, 50.01, 0.02)
    clock.learn(1.0, 51.9, 51.9, 2.0)  # a slow one says less
    assert clock.now(2.0) == pytest.approx(52.0)
    assert clock.error_s(2.0) == pytest.approx(0.01, abs=1e-3)


def test_it_follows_a_broker_whose_clock_was_set() -> None:
    clock = BrokerClock()
    clock.learn(0.0, 50.01, 50.01, 0.02)
    clock.learn(1.0, 3651.5, 3651.5, 2.0)
    assert clock.now(2.0) == pytest.approx(3652.0, abs=0.5)


def test_before_the_first_answer_nothing_is_due() -> None:
    clock = BrokerClock()
    assert math.isnan(clock.now(1.0))
    assert clock.steady_at(5.0) == clock.error_s(5.0) == math.inf
    clock.learn(0.0, 50.0, 49.0, 1.0)  # sent before it was received
    clock.learn(0.0, 50.0, 50.0, 100.0)  # too long on the way to say anything
    assert math.isnan(clock.now(1.0))


# -- the pending ----------------------------------------------------------------------------------

JOBS = st.lists(
    st.builds(
        assignment,
        key=st.integers(0, 12).map(str),
        at=st.floats(0, 100),
        duration_s=st.floats(0.5, 50),
    ),
    max_size=8,
)


@given(st.lists(st.tuples(JOBS, st.floats(0, 30)), max_size=10))
def test_everything_has_its_turn_once_and_never_before_its_time(
    steps: list[tuple[list[Assignment], float]],
) -> None:
    pending, now, ids = PendingAssignments(), 0.0, set()
    for listed, pause in steps:
        pending.replace(listed)
        now += pause
        due, late = pending.take(now)
        for task in (*due, *late):
            assert task.id not in ids
            ids.add(task.id)
            assert task.at <= now
        for task in due:
            assert now - task.at <= max(1.0, 0.1 * task.duration_s)
        assert pending.next_at() > now


def test_servers_begin_before_their_clients() -> None:
    pending = PendingAssignments()
    two = {"tool": "echo", "peer": "192.0.2.1", "port": 5201, "subject": "mu>tacc"}
    pending.replace([assignment("c", role="client", **two), assignment("s", role="server", **two)])
    assert pending.next_at() == 100.0 - LEAD_S
    assert [a.id for a in pending.take(99.9)[0]] == ["s"]
    assert [a.id for a in pending.take(100.0)[0]] == ["c"]


@pytest.mark.parametrize(
    ("duration_s", "now", "late"),
    [(3.0, 100.9, False), (3.0, 101.1, True), (20.0, 101.9, False), (20.0, 102.1, True),
     (0.2, 100.1, False), (0.2, 100.3, True)],
)  # fmt: skip
def test_what_is_too_late(duration_s: float, now: float, late: bool) -> None:
    pending = PendingAssignments()
    pending.replace([assignment("a", duration_s=duration_s)])
    due, missed = pending.take(now)
    assert [a.id for a in (missed if late else due)] == ["a"]


# -- limits --------------------------------------------------------------------------------------

ABLE = dict.fromkeys(TOOLS, "")
ECHO = {"tool": "echo", "role": "server", "peer": "192.0.2.7", "port": 5201}


@pytest.mark.parametrize(
    ("job", "limits", "why"),
    [
        (ECHO, AgentLimits(), ""),
        (ECHO, AgentLimits(tools=frozenset({"host"})), "this agent does not use echo"),
        (ECHO, AgentLimits(peers=(ip_network("192.0.2.0/29"),)), ""),
        (ECHO, AgentLimits(peers=(ip_network("2001:db8::/32"),)), "192.0.2.7 is not among"),
        (ECHO, AgentLimits(ports=(6000, 7000)), "port 5201 is not among the agent's, 6000 to 7000"),
        (ECHO | {"role": "client"}, AgentLimits(ports=(6000, 7000)), ""),
        (
            ECHO | {"options": {"interval": 0.01, "length": 1000}},
            AgentLimits(rate_bps=1e5),
            "800 kb/s is above the agent's 100 kb/s",
        ),
        ({"duration_s": 500.0}, AgentLimits(), "a run of 500 s is above the agent's 300 s"),
        ({}, AgentLimits(at_once=2), "2 runs at once are the agent's limit"),
    ],
)
def test_limits(job: dict[str, Any], limits: AgentLimits, why: str) -> None:
    job = dict(job)
    job["options"] = TOOLS[job.get("tool", "host")].checked(job.get("options", {}))
    reason = refusal(assignment(**job), limits, ABLE, running=2)
    assert reason.startswith(why) if why else not reason


def test_a_tool_that_is_not_there_is_named() -> None:
    able = ABLE | {"host": "there is no /proc"}
    assert (
        refusal(assignment(), AgentLimits(), able, 0)
        == "host cannot be used here: there is no /proc"
    )


# -- the wire ------------------------------------------------------------------------------------

JSON = any_json(max_leaves=20)
STAMPED = {"agent": "mu", "received": 1.0, "sent": 1.0, "version": 1}
GOOD = assignment(**{**ECHO, "subject": "mu>tacc", "options": {"count": 5}})


@given(JSON)
def test_whatever_comes_is_an_answer_or_one_error(answer: Any) -> None:
    try:
        broker_link.check_receiver(answer, "mu")
    except BrokerError:
        return
    for read in (broker_link.orders_of, broker_link.receipt_of):
        try:
            read(answer)
        except BrokerError as error:
            assert error.code == "bad_answer"


@given(key=st.sampled_from(list(GOOD.as_dict())), value=JSON)
def test_an_assignment_with_anything_in_it_is_whole_or_refused(key: str, value: Any) -> None:
    answer = {**STAMPED, "assignments": [{**GOOD.as_dict(), key: value}]}
    try:
        orders = broker_link.orders_of(answer)
    except BrokerError:
        assert key == "id"
        return
    for order in orders.assignments:
        tool = TOOLS[order.tool]
        assert (order.role == "alone") == (tool.ends < 2)
        assert order.duration_s > 0
        assert tool.checked(order.options) == order.options
    assert len(orders.assignments) + len(orders.strange) == 1


# -- the configuration ---------------------------------------------------------------------------

PLAIN: dict[str, Any] = {"name": "mu", "broker": "https://b:1", "token": TOKEN, "state": "s"}


def test_a_whole_configuration(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(TOKEN + "\n")
    data = {
        "name": "mu/dtn1",
        "broker": "https://broker:8470",
        "token_file": "t",
        "ca": "ca.pem",
        "certificate": "c.pem",
        "key": "/etc/c.key",
        "state": "state",
        "address": "192.0.2.1",
        "clock_error": "2 ms",
        "limits": {
            "tools": ["tcp", "host"], "rate": "2 Gb/s", "peers": ["192.0.2.9/24"], "run": "1 min",
            "at_once": 2, "ports": [5201, 5210], "clocks_error": "1 ms",
        },
        "commands": {"disk": {"argv": ["disk", "-q"], "unit": "ms", "timeout": "3 s"}},
        "workflows": ["user"],
    }  # fmt: skip
    read = settings_from_dict(data, tmp_path, "1.0")
    assert read.token == TOKEN
    assert read.tls.ca == str(tmp_path / "ca.pem")
    assert read.tls.key == "/etc/c.key"
    assert read.state == tmp_path / "state"
    assert read.clock_error_s == pytest.approx(0.002)
    assert read.limits == AgentLimits(
        frozenset({"tcp", "host"}), 2e9, (ip_network("192.0.2.0/24"),), 60.0, 2, (5201, 5210), 0.001
    )
    assert read.commands["disk"].argv == ("disk", "-q")
    assert read.workflows == ("user",)
    del data["token_file"]  # it has a certificate
    assert settings_from_dict(data, tmp_path, "1.0").token == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"nam": "mu"}, "did you mean 'name'"),
        ({"name": "m u"}, "expected a site, or SITE/HOST"),
        ({"token": "short"}, "expected at least 16"),
        ({"token_file": "t"}, "expected one of them"),
        ({"certificate": "c.pem"}, "expected both or none"),
        ({"address": "here"}, "expected an IP address"),
        ({"limits": {"tols": []}}, "did you mean 'tools'"),
        ({"limits": {"rate": "5 MB"}}, "expected bits per second"),
        ({"limits": {"peers": ["mu"]}}, "expected one such as 192.0.2.0/24"),
        ({"limits": {"ports": [5, 1]}}, "expected the first and the last port"),
        ({"commands": {"disk": {"argv": "disk -q"}}}, "expected a list"),
        ({"commands": {"d isk": {"argv": ["x"]}}}, "expected a name of letters"),
        ({"workflows": ["somebody"]}, "expected 'user', 'all'"),
    ],
)
def test_a_configuration_that_cannot_be_meant(
    wrong: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        settings_from_dict({**PLAIN, **wrong}, tmp_path, "1.0")
    assert "\n" not in str(caught.value)


@given(JSON)
def test_any_configuration_is_read_or_refused(data: Any) -> None:
    try:
        settings_from_dict(data, Path("/nowhere"), "1.0")
    except InputError:
        return
    raise AssertionError(f"{data!r} was taken")


# iproute2 6.1, 5.x with a limit of the program's, IPv6 of both kinds, and what has sent nothing.
OUTPUT = """\
0 3235770 192.0.2.29:42314 192.0.2.37:5201 cubic wscale:7,7 rto:204 rtt:3.579/1.106 mss:8949 \
bytes_sent:50397 bytes_retrans:2122 bytes_acked:50394 send 900150880bps pacing_rate 1079917032bps \
delivery_rate 1011626080bps busy:438588ms rwnd_limited:433148ms(98.8%) notsent:3235770 minrtt:0.2
0      9      192.0.2.29%eth0:22    192.0.2.40:50112   \t cubic bytes_acked:7 pacing_rate \
1.8Mbps/2.5Mbps app_limited busy:91ms sndbuf_limited:60ms(65.9%)
0 0 [2001:db8::1]:443 [2001:db8::2]:50000 cubic bytes_acked:1
0 0 [::ffff:192.0.2.29]:80 [::ffff:192.0.2.41]:50001 cubic wscale:7,7 rto:204 lastsnd:5
0 0 127.0.0.1:5432 127.0.0.1:50002 cubic bytes_acked:3
0 0 192.0.2.29:5433 192.0.2.29:50003 cubic bytes_acked:3
"""


def test_the_output_of_ss() -> None:
    assert parse_ss(OUTPUT) == {
        ("192.0.2.29", 42314, "192.0.2.37", 5201): SocketCounters(
            50394, 438588, 433148, 0, 3235770
        ),
        ("192.0.2.29", 22, "192.0.2.40", 50112): SocketCounters(7, 91, 0, 60, 0, 2.5e6),
        ("2001:db8::1", 443, "2001:db8::2", 50000): SocketCounters(1),
        ("192.0.2.29", 80, "192.0.2.41", 50001): SocketCounters(),
    }
    with pytest.raises(ValueError, match="'usage: ss', expected queues"):
        parse_ss("usage: ss\n")


ENDS: Ends = ("192.0.2.29", 42314, "192.0.2.37", 5201)
NOW = SocketCounters(1000, 500, 100, 0, 9)


class Host:
    """Connections, second by second."""

    def __init__(self) -> None:
        self.now, self.counters = 100.0, {}
        self.reporter = SocketReporter(lambda: dict(self.counters), lambda: self.now)
        self.posted: list[list[Any]] = []

    def second(self, counters: Mapping[Ends, SocketCounters]) -> list[Any]:
        """What is reported after one."""
        self.now, self.counters = self.now + 1, dict(counters)
        self.posted = []
        self.reporter.observe(lambda body: self.posted.append(body["sockets"]))
        return self.posted


def test_what_connections_did_is_reported_each_second() -> None:
    host = Host()
    assert host.second({ENDS: NOW}) == [], "nobody knows since when"
    later = replace(NOW, acked=126_000, busy=1250, window=350)
    assert host.second({ENDS: later}) == [[[*ENDS, 1.0, 125_000, 0.75, 0.25, 0.0, True, 0.0]]]
    # Another one with the same ports, and one that began meanwhile.
    other = (*ENDS[:3], 5202)
    new = SocketCounters(7, 10, 0, 0, 0, 2e6)
    assert host.second({ENDS: new, other: replace(new, acked=9)}) == [
        [[*other, 1.0, 9, 0.01, 0.0, 0.0, False, 2e6], [*ENDS, 1.0, 7, 0.01, 0.0, 0.0, False, 2e6]]
    ]


def test_who_has_stopped_sending_is_reported_for_a_while_and_then_nobody() -> None:
    host = Host()
    host.second({})
    host.second({ENDS: replace(NOW, waiting=0)})
    idle = [host.second({ENDS: replace(NOW, waiting=0)}) for _ in range(30)]
    assert idle[0] == [[[*ENDS, 1.0, 0, 0.0, 0.0, 0.0, False, 0.0]]]
    assert idle[-5:].count([[]]) == 1, "the broker knows that somebody looks"
    assert idle[-5:].count([]) == 4
