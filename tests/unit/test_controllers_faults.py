"""Switches that answer wrong, hang up, or lose everything, at any point of a change."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from controller_rig import PATH, FakeRig
from controller_worlds import MBPS
from fake_switch import ERROR, PACKET_IN, FakeSwitch

from network_provisioner.base.controller import Circuit, ControllerError, Part
from network_provisioner.base.flows import Flow
from network_provisioner.controllers import frames

L3 = ("mu", "s1", "r1", "s2", "tacc")
Tables = dict[str, object]


@pytest.fixture
def rig() -> Iterator[FakeRig]:
    with closing(FakeRig()) as made:
        made.controller.start(60.0)
        yield made


def first(rig: FakeRig) -> list[Circuit]:
    return [
        rig.circuit("stays", 10),
        replace(rig.circuit("goes", 10), flows=(Flow("tcp", None, (5001, 5003)),)),
    ]


def second(rig: FakeRig) -> list[Circuit]:
    """One stays, one goes, one is split over two paths."""
    parts = (Part(PATH, 10 * MBPS, 20 * MBPS), Part(L3, 5 * MBPS, 10 * MBPS))
    split = Circuit(
        "split", PATH, 15 * MBPS, 30 * MBPS, rig.now() + 60,
        flows=(Flow("tcp", None, (6001, 6001)),), parts=parts,
    )  # fmt: skip
    return [rig.circuit("stays", 10), split]


def tables(rig: FakeRig) -> Tables:
    """All that is on the switches, but for counters, clocks and the stamps."""
    contents: Tables = {}
    for switch in (rig.s1, rig.s2):
        with switch.lock:
            contents |= {
                f"{switch.dpid} rule {key}": (e.cookie, e.rest)
                for key, e in switch.table.items()
                if e.cookie in rig.cookies(switch).values()
            }
            contents |= {f"{switch.dpid} group {n}": body for n, body in switch.groups.items()}
    return contents


def garbage(answer: bytes) -> bytes:
    return struct.pack("!BBHI", 4, 19, 12, 0) + b"\xff" * 4 if answer else b""


def truncated(answer: bytes) -> bytes:
    """Shorter than it says inside."""
    if len(answer) <= 40:
        return answer
    return answer[:2] + struct.pack("!H", 40) + answer[4:40]


def other_numbers(answer: bytes) -> bytes:
    return answer[:4] + struct.pack("!I", 0x7FFFFFFF) + answer[8:] if len(answer) >= 8 else answer


def always_errors(answer: bytes) -> bytes:
    return struct.pack("!BBHI", 4, ERROR, 12, *struct.unpack_from("!I", answer, 4)) + b"\0\1\0\1"


@pytest.mark.parametrize("lie", [garbage, truncated, other_numbers, always_errors])
def test_a_switch_that_answers_wrong_is_an_error_and_changes_nothing(
    rig: FakeRig, lie: Callable[[bytes], bytes]
) -> None:
    rig.controller.apply(first(rig))
    before = tables(rig)
    rig.s2.mangle = lambda answer: lie(answer) if answer else b""
    rig.wait_at_most(1.0)
    with pytest.raises(ControllerError, match=r"switch s2 \(dpid 0x2\)") as caught:
        rig.controller.apply(second(rig))
    assert "\n" not in str(caught.value)
    rig.s2.mangle = lambda answer: answer
    rig.wait_at_most(30.0)
    rig.wait_for("return", lambda: rig.controller.installed() == ["goes", "stays"])
    rig.wait_for("what was there", lambda: tables(rig) == before)


def test_a_message_that_lacks_what_it_needs_ends_its_connection_alone(
    rig: FakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.controller.apply(first(rig))
    frame = frames.lldp(1, 10, rig.openflow._switches._number)
    head = struct.pack("!IHBBQHH6x", 0xFFFFFFFF, len(frame), 1, 0, 0, 1, 4)  # no port
    rig.s2.say(struct.pack("!BBHI", 4, PACKET_IN, 34 + len(frame), 0) + head + frame)
    rig.wait_for("a new connection", lambda: rig.s2.connections == 2)
    rig.wait_for("return", lambda: rig.controller.installed() == ["goes", "stays"])
    # By the thread of the connection that has ended, which may come after the new one's.
    rig.wait_for("the report", lambda: "it sent" in caplog.text)
    assert rig.s1.connections == 1
    lines = [r.getMessage() for r in caplog.records if "it sent" in r.getMessage()]
    assert len(lines) == 1 and lines[0].startswith("switch s2 (dpid 0x2) was disconnected: ")


def test_messages_of_vendors_and_of_later_versions_are_passed_over(
    rig: FakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        rig.s2.say(struct.pack("!BBHI", 4, 35, 24, 0) + bytes(16))
        rig.s2.say(struct.pack("!BBHIHHI", 4, ERROR, 16, 0, 0xFFFF, 1, 0x2320))
    rig.wait_for("all of them", lambda: caplog.text.count("OFPET_EXPERIMENTER") == 2)
    assert caplog.text.count("switch 0x2 sent a message of type 35 that cannot be read") == 1
    assert "Traceback" not in caplog.text
    rig.controller.apply(first(rig))
    assert rig.s2.connections == 1


class At:
    """Does something when a switch has received so many messages, once."""

    def __init__(self, count: int, what: Callable[[], None]) -> None:
        self._left, self._what = count, what
        self.seen = 0

    def __call__(self, kind: int) -> None:
        self.seen += 1
        self._left -= 1
        if self._left == 0:
            self._what()


def change(rig: FakeRig, watched: FakeSwitch, count: int, what: Callable[[], None]) -> int:
    """From the first circuits to the second, with something happening on the way; how many
    messages the switch was sent."""
    watched.on_message = at = At(count, what)
    try:
        rig.controller.apply(second(rig))
        names = ["split", "stays"]
    except ControllerError:
        names = ["goes", "stays"]
    rig.wait_for(f"resync after {count}", lambda: settled(rig, names))
    watched.on_message = lambda kind: None
    return at.seen


def settled(rig: FakeRig, names: list[str]) -> bool:
    """``installed`` asks the switches, and they may still be on their way back."""
    return rig.controller.installed() == names


@pytest.mark.parametrize("name", ["s1", "s2"])
@pytest.mark.parametrize("loses", [False, True])
def test_a_switch_that_hangs_up_or_restarts_at_any_message(
    rig: FakeRig, name: str, loses: bool
) -> None:
    rig.controller.apply(second(rig))
    wanted = tables(rig)
    rig.controller.apply(first(rig))
    watched: FakeSwitch = getattr(rig, name)
    total = change(rig, watched, 10**6, lambda: None)
    assert total > 6
    for count in range(1, total + 1):
        rig.controller.apply(first(rig))
        change(rig, watched, count, watched.restart if loses else watched.hang_up)
        rig.controller.apply(second(rig))
        assert tables(rig) == wanted, f"after {count} of {total} messages"
    assert {c.mark for c in rig.shaper.laid["s1-a"].classes}
    rig.controller.apply([])
    assert tables(rig).keys() == {k for k in wanted if "(10, " in k}


CHILD = """
import sys
from controller_rig import FakeRig
from test_controllers_faults import first, second
rig = FakeRig(port=int(sys.argv[1]))
rig.controller.start(60)
rig.controller.apply(first(rig))
print("first", flush=True)
sys.stdin.readline()
rig.controller.apply(second(rig))
print("second", flush=True)
sys.stdin.readline()
"""


def killed_at(rig: FakeRig, count: int) -> int:
    """Kills a child when s1 has received so many messages of the change; how many it received."""
    here = Path(__file__).resolve().parent
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(rig.port)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "first\n"
            rig.s1.on_message = at = At(count, lambda: os.kill(process.pid, signal.SIGKILL))
            process.stdin.write("\n")
            process.stdin.flush()
            said = process.stdout.readline()
            assert (said == "") == (at.seen >= count)
            return at.seen
        finally:
            rig.s1.on_message = lambda kind: None
            process.kill()


def survives(rig: FakeRig, counts: Iterable[int]) -> None:
    """The broker is killed at these messages, and starts again with what its store says."""
    rig.controller.apply(second(rig))
    wanted = tables(rig)
    rig.controller.stop()
    for count in counts:
        killed_at(rig, count)
        rig.controller = rig.openflow = rig.new_controller()
        rig.controller.start(60.0)
        rig.controller.apply(second(rig))
        assert tables(rig) == wanted, f"killed at message {count}"
        rig.controller.apply(first(rig))
        rig.controller.stop()


def test_a_broker_killed_between_two_messages_leaves_neither_leak_nor_double(rig: FakeRig) -> None:
    survives(rig, [4])


@pytest.mark.long
def test_a_broker_killed_between_any_two_messages(rig: FakeRig) -> None:
    rig.controller.stop()
    total = killed_at(rig, 10**6)
    assert total > 6
    rig.controller.start(60.0)
    survives(rig, range(1, total + 1))
