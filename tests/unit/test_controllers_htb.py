from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from network_provisioner.base.controller import ControllerError
from network_provisioner.base.errors import MissingError
from network_provisioner.controllers.shaping.htb import TcShaper
from network_provisioner.controllers.shaping.shapes import (
    CommandRunner,
    DeviceShape,
    QueueClass,
    ShapeClass,
)

EMPTY = DeviceShape("s1", "s1-a", 200e6, 0.0265)
ONE = replace(EMPTY, classes=(ShapeClass(5, 150e6, 200e6),))
TWO = replace(EMPTY, classes=(ShapeClass(5, 100e6, 200e6), ShapeClass(6, 20e6, 200e6)))


class Tc:
    """Understands as much of ``tc`` as is needed to refuse what the kernel refuses."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.classes: dict[str, dict[str, str]] = {}
        self.filters: dict[str, set[str]] = {}
        self.shown: dict[str, dict[str, dict[str, str]]] = {}

    def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        lines = stdin.splitlines()
        if list(command) == ["tc", "-force", "-batch", "-"]:
            devices = [line.split()[3] for line in lines if line.startswith("class show ")]
            return (
                0,
                "\n".join("qdisc noqueue 0: root refcnt 2\n" + self._shown(d) for d in devices),
                "",
            )
        assert list(command) == ["tc", "-batch", "-"]
        self.batches.append(lines)
        for number, line in enumerate(lines, 1):
            if not self._do(line.split()):
                return 1, "", f"RTNETLINK answers: No such file\nCommand failed -:{number}"
        return 0, "", ""

    def _shown(self, dev: str) -> str:
        """As tc prints it; what was made by a class command is kept word by word."""
        lines = []
        for class_id, value in self.shown.get(dev, {}).items():
            parent = "root" if value["parent"] in ("1:", "7ad0:") else f"parent {value['parent']}"
            prio = f"prio {value['prio']} " if "prio" in value else ""
            rates = " ".join(f"{k} {int(value[k][:-3]) // 1000}Kbit" for k in ("rate", "ceil"))
            lines.append(f"class htb {class_id} {parent} {prio}{rates} burst 1600b")
        for line in self.filters.get(dev, ()):
            _, _, _, _, family, _, value, mask, _, target = line.split()
            at = 16 if family == "ip" else 20
            lines.append(f"filter protocol ip pref 1 u32 *flowid {target} not_in_hw")
            lines.append(f"  match {int(value, 16) << at:08x}/{int(mask, 16) << at:08x} at 0")
        return "\n".join(lines)

    def _do(self, words: list[str]) -> bool:
        kind, verb, dev = words[0], words[1], words[3]
        value = dict(pairwise(words))
        if kind == "qdisc" and "root" in words:
            self.classes.pop(dev, None)
            self.shown.pop(dev, None)
            self.filters[dev] = set()
            if "htb" in words:
                self.classes[dev] = {}
            return True
        return dev in self.classes and getattr(self, f"_{kind}_{verb}")(dev, words, value)

    def _class_replace(self, dev: str, words: list[str], value: dict[str, str]) -> bool:
        there = self.classes[dev]
        if value["parent"] != "7ad0:" and value["parent"] not in there:
            return False
        there[value["classid"]] = value["rate"]
        self.shown.setdefault(dev, {})[value["classid"]] = value
        return True

    def _class_del(self, dev: str, words: list[str], value: dict[str, str]) -> bool:
        used = any(f.endswith(f"flowid {value['classid']}") for f in self.filters[dev])
        used = used or any(c["parent"] == value["classid"] for c in self.shown[dev].values())
        self.shown[dev].pop(value["classid"], None)
        return not used and self.classes[dev].pop(value["classid"], None) is not None

    def _qdisc_replace(self, dev: str, words: list[str], value: dict[str, str]) -> bool:
        return value["parent"] in self.classes[dev]

    def _filter_add(self, dev: str, words: list[str], value: dict[str, str]) -> bool:
        self.filters[dev].add(" ".join(words[words.index("prio") :]))
        return value["flowid"] in self.classes[dev]

    def _filter_del(self, dev: str, words: list[str], value: dict[str, str]) -> bool:
        gone = {f for f in self.filters[dev] if f.startswith(f"prio {value['prio']} ")}
        self.filters[dev] -= gone
        return bool(gone)


class Refusing:
    """Says no."""

    def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        return 1, "", "Error: no\n\nCommand failed -:1\n"


def test_one_batch_for_each_change_and_none_for_no_change() -> None:
    tc = Tc()
    shaper = TcShaper(tc)
    shaper.sync([EMPTY])
    shaper.grow([ONE])
    shaper.shrink([ONE])
    assert len(tc.batches) == 2
    shaper.grow([ONE])
    shaper.shrink([ONE])
    assert len(tc.batches) == 2
    shaper.grow([EMPTY])
    shaper.shrink([EMPTY])
    assert len(tc.batches) == 3


@pytest.mark.parametrize(
    ("capacity_bps", "delay_s", "burst_bytes", "queue_bytes"),
    [
        (8e9, 0.05, 4_000_000, 100_000_000),  # 4 ms, and a round trip of 100 ms, at 1 GB/s
        (8e9, 0.0, 4_000_000, 50_000_000),  # 50 ms at least
        (8e6, 0.0, 131_072, 262_144),  # no less than some large packets
        (8e12, 0.05, 4_000_000_000, 2**32 - 1),
    ],
)
def test_bursts_and_queues_hold_what_the_link_sends_in_their_time(
    capacity_bps: float, delay_s: float, burst_bytes: int, queue_bytes: int
) -> None:
    tc = Tc()
    TcShaper(tc).sync([replace(ONE, capacity_bps=capacity_bps, delay_s=delay_s)])
    value = [dict(pairwise(line.split())) for batch in tc.batches for line in batch]
    assert {v["burst"] for v in value if "burst" in v} == {f"{burst_bytes}"}
    assert {v["limit"] for v in value if "limit" in v} == {f"{queue_bytes}"}


def test_what_is_in_a_queue_goes_before_it() -> None:
    tc = Tc()
    shaper = TcShaper(tc)
    shaper.sync([EMPTY])
    queues = (QueueClass("q", "", 50e6, 200e6), QueueClass("in q", "q", 20e6, 100e6))
    queued = replace(EMPTY, classes=(ShapeClass(5, 10e6, 50e6, "in q"),), queues=queues)
    shaper.grow([queued])
    assert len(tc.classes["s1-a"]) == 5
    shaper.grow([EMPTY])
    shaper.shrink([EMPTY])
    assert set(tc.classes["s1-a"]) == {"7ad0:1", "7ad0:2"}
    assert not any("root" in line for line in tc.batches[-1])  # or the device is laid anew


def test_the_best_effort_class_shrinks_before_others_grow_and_grows_after() -> None:
    tc = Tc()
    shaper = TcShaper(tc)
    shaper.sync([EMPTY])
    shaper.grow([ONE])
    assert "classid 7ad0:2 " in tc.batches[-1][0]
    shaper.shrink([ONE])
    shaper.grow([EMPTY])
    assert tc.classes["s1-a"]["7ad0:2"] == "50000000bit"


def test_a_device_that_somebody_else_may_have_changed_is_looked_at() -> None:
    tc = Tc()
    ours, theirs = TcShaper(tc), TcShaper(tc)
    ours.sync([ONE])
    theirs.sync([ONE])
    ours.doubt()
    ours.grow([TWO])
    assert not any("root" in line for line in tc.batches[-1])
    theirs.doubt()
    theirs.grow([TWO])  # it is there already
    assert not any("root" in line for line in tc.batches[-1])
    theirs.shrink([TWO])
    theirs.doubt()
    ours.grow([EMPTY])
    ours.shrink([EMPTY])
    theirs.grow([ONE])  # neither what it laid nor what it wants is there
    assert "qdisc replace dev s1-a root pfifo" in tc.batches[-1]
    assert tc.classes["s1-a"]["7ad0:105"] == "150000000bit"


def test_a_filter_that_looks_at_something_else_is_found() -> None:
    tc = Tc()
    shaper = TcShaper(tc)
    shaper.sync([ONE])
    assert shaper.sync([ONE]) == []
    tc.filters["s1-a"] = {line.replace("tos 0x14", "tos 0x18") for line in tc.filters["s1-a"]}
    assert shaper.sync([ONE]) == ["s1-a"]
    assert shaper.sync([ONE]) == []


def test_a_refusal_is_one_line() -> None:
    broken = TcShaper(Refusing())
    with pytest.raises(ControllerError, match=r"tc refused to shape: Error: no; Command failed"):
        broken.grow([ONE])


def test_a_missing_program_is_named() -> None:
    with pytest.raises(MissingError, match="iproute2"):
        TcShaper(CommandRunner(["/nonexistent/ip", "netns"])).sync([EMPTY])


def test_a_command_that_hangs_is_a_failure() -> None:
    code, _, said = CommandRunner(["timeout", "60", "sleep", "60"], timeout_s=0.1).ask([])
    assert code != 0 and "no answer" in said


def test_a_command_that_may_not_run_or_prints_no_text_is_a_failure() -> None:
    assert CommandRunner(["/etc/passwd"]).ask([]) == (126, "", "/etc/passwd: Permission denied")
    login = CommandRunner(["sh", "-c", "printf '\\377' >&2; exit 255"])
    assert login.ask([]) == (255, "", "\ufffd")


def test_what_somebody_has_put_in_place_of_ours_is_not_cleared() -> None:
    tc = Tc()
    shaper = TcShaper(tc)
    shaper.sync([EMPTY, replace(EMPTY, device="s1-b")])
    # As in most examples of tc; Open vSwitch's own begin at 1 as well.
    theirs = {"parent": "1:", "rate": "9000bit", "ceil": "9000bit"}
    tc.shown["s1-a"] = {"1:1": theirs}
    shaper.remove(["s1-a", "s1-b"])
    assert tc.batches[-1] == ["qdisc del dev s1-b root handle 7ad0:"]


def test_what_an_earlier_run_has_laid_is_cleared() -> None:
    tc = Tc()
    TcShaper(tc).sync([ONE])
    shaper = TcShaper(tc)
    shaper.begin([EMPTY])
    assert tc.classes["s1-a"]["7ad0:105"] == "150000000bit"
    TcShaper(tc).remove(["s1-a"])
    assert tc.batches[-1] == ["qdisc del dev s1-a root handle 7ad0:"]
