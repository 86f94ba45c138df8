"""A day in a broker's life, and its death by kill -9 at any step of it.

The broker runs in a process of its own. What is on its "switches" stands in a file, as it would
outlive the broker on real ones, and so does how far its clients have come. A step is a turn that is
taken, and a write to the store or a word to the switches, before and after it.
"""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from broker_rig import Clock, FakeController, Rig, demo_network

from network_provisioner.base.controller import Circuit, Queue
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import Transit, TransitRequest
from network_provisioner.stores.store import Store

MBPS = 1e6
TEMPLATES = {
    name: {
        "qspec": {"min_throughput": "10 Mb/s"},
        "rspec": {"max_throughput": "500 Mb/s"},
        "priority": priority,
        "patience": "1 h",
        "paths": paths,
    }
    for name, priority, paths in (("low", 1, 1), ("high", 5, 1), ("wide", 1, 2))
}
Deed = tuple[float, Callable[[Rig], object]]


def note(file: Path, line: object) -> None:
    """The file's newest line. Nothing is cut off: to write a file anew waits for the disk."""
    with file.open("a") as notes:
        notes.write(f"{line}\n")


def noted(file: Path) -> str:
    """The newest line, "" of a file that is not there."""
    return file.read_text().splitlines()[-1] if file.exists() else ""


def _ask(name: str, src: str, dst: str, **terms: Any) -> Callable[[Rig], object]:
    return lambda rig: rig.ask(name, src, dst, **{"template": "low", **terms})


def _port(number: int) -> tuple[Flow, ...]:
    return (Flow(dst_ports=(number, number)),)


T0 = Clock().now
TOGETHER = [
    TransitRequest(name, src, dst, template="low", lease_s=25)
    for name, src, dst in (("one", "mu", "local"), ("two", "iplant", "tacc"))
]
DAY: tuple[Deed, ...] = (  # seconds that pass, and what a client does then
    (0, _ask("moves", "local", "iplant", min_bps=60 * MBPS)),
    (0, _ask("short", "mu", "tacc", lease_s=20, max_bps=40 * MBPS)),
    (0, _ask("later", "mu", "iplant", min_bps=30 * MBPS, start=T0 + 30, end=T0 + 60)),
    (1, _ask("first", "local", "tacc", template="high", min_bps=140 * MBPS)),
    (1, _ask("split", "tacc", "local", template="wide", min_bps=200 * MBPS, flows=_port(5000))),
    (1, _ask("waits", "mu", "iplant", template="high", min_bps=120 * MBPS, flows=_port(6000))),
    (1, _ask("back", "iplant", "mu")),
    (1, lambda rig: rig.broker.ask(TOGETHER)),
    (1, lambda rig: rig.broker.renew("moves", 2000)),
    (10, lambda rig: rig.broker.sweep()),
    (10, lambda rig: rig.broker.sweep()),  # the lease of "short" has ended
    (10, lambda rig: rig.broker.sweep()),  # "later" begins
    (1, lambda rig: rig.broker.release("first", 10**9, 20.0, "success")),
    (5, lambda rig: rig.broker.release("split", 10**9, 20.0, "success")),
    (0, lambda rig: rig.broker.release("short", 10**6, 1.0, "success")),  # reported late
    (40, lambda rig: rig.broker.sweep()),  # the end of "later"
    (1, lambda rig: rig.broker.release("back")),
)


class SteppedStore:
    """A store that tells ``step`` when it is asked who leads, and of each write before and after
    it."""

    def __init__(self, store: Store, step: Callable[[str], object]) -> None:
        self._store = store
        self._step = step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def check_leads(self) -> None:
        self._store.check_leads()
        self._step("it leads")

    def put_many(self, transits: Sequence[Transit]) -> None:
        self._step("about to be stored")
        self._store.put_many(transits)
        self._step("stored")


class LastingSwitches(FakeController):
    """Switches that keep what they have when the broker dies."""

    def __init__(self, folder: Path, step: Callable[[str], object]) -> None:
        super().__init__(demo_network(l3="150 Mb/s"), matches=True, multipath=True)
        self._file = folder / "switches"
        self._step = step

    def start(self, timeout_s: float) -> None:
        if left := noted(self._file):
            self.left = json.loads(left)

    def apply(self, circuits: Sequence[Circuit], queues: Sequence[Queue] = ()) -> None:
        self._step("the switches are about to be told")
        super().apply(circuits, queues)
        entries = sorted((c.id, list(c.path), c.min_bps) for c in circuits)
        note(self._file, json.dumps(entries))
        self._step("the switches were told")


def broker(
    folder: Path, now: float, open_store: Callable[[], Store], step: Callable[[str], object]
) -> Rig:
    """A broker that has started, on what the last one left."""
    switches = LastingSwitches(folder, step)
    return Rig(
        folder / "unused",
        switches.topology,
        TEMPLATES,
        clock=Clock(now),
        controller=switches,
        store=cast(Store, SteppedStore(open_store(), step)),
    )


def live(
    folder: Path,
    open_store: Callable[[], Store],
    step: Callable[[str], object] = lambda _: None,
    done: int = 0,
) -> dict[str, Any]:
    """The day from its deed number ``done`` on; what the broker and its switches say at its end."""
    now = T0 + sum(after for after, _ in DAY[: done + 1])
    rig = broker(folder, now, open_store, step)
    for number, (after, deed) in enumerate(DAY[done:], done):
        if number > done:
            rig.clock.now += after
        note(folder / "done", number)
        deed(rig)
    state = said(rig, folder)
    rig.store.close()
    return state


def said(rig: Rig, folder: Path) -> dict[str, Any]:
    """Whatever must be the same however often the broker died on the way. The rates of now are the
    switches'; what one had that ended is not written at each change."""
    keys = (
        "state", "path", "layer", "requested_bps", "lease_until", "installed_at", "released_at",
        "bytes", "moves", "priority",
    )  # fmt: skip
    transits = {
        t.id: {k: v for k, v in t.as_dict().items() if k in keys} for t in rig.broker.list()
    }
    return {
        "transits": transits,
        "switches": json.loads(noted(folder / "switches")),
        "reserved": rig.reserved(),
    }


def dies_at_every(stride: int, folder: Path, new_place: Callable[[], Callable[[], Store]]) -> None:
    """Kill it at its first step and every ``stride``-th after it, in a place of its own each time,
    and let it begin anew: in the end everything is as if it had never died.

    ``new_place()`` makes an empty place for state, and gives what opens a store there.
    """
    steps: list[str] = []
    whole = folder / "whole"
    whole.mkdir()
    expected = live(whole, new_place(), steps.append)
    assert len(steps) > 60 and len(set(steps)) == 5, steps
    states = {name: transit["state"] for name, transit in expected["transits"].items()}
    assert states == {
        "short": "expired",
        "later": "expired",
        "moves": "installed",
        "first": "released",
        "split": "released",
        "waits": "installed",
        "back": "released",
        "one": "expired",
        "two": "expired",
    }
    assert expected["transits"]["moves"]["moves"] == 1
    assert {name for name, *_ in expected["switches"]} == {"moves", "waits"}
    for number in range(1, len(steps) + 1, stride):
        place = folder / str(number)
        place.mkdir()
        open_store = new_place()
        done = die_at(number, place, open_store)
        assert live(place, open_store, done=done) == expected, (number, steps[number - 1], done)


def die_at(number: int, folder: Path, open_store: Callable[[], Store]) -> int:
    """Let a broker live its day in a process of its own, killed at one of its steps (counted from
    1). Returns the number of the deed that it died in."""
    left = [number]

    def step(_: str) -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            live(folder, open_store, step)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    return int(noted(folder / "done") or 0)
