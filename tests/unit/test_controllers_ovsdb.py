"""Open vSwitch's queues by ``ovs-vsctl``, against a database that understands the few commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from network_provisioner.controllers.base import ControllerError
from network_provisioner.controllers.shaping.ovsdb import VsctlShaper
from network_provisioner.controllers.shaping.shapes import DeviceShape, ShapeClass

EMPTY = DeviceShape("s1", "s1-a", 200e6, 0.0265)
ONE = replace(EMPTY, classes=(ShapeClass(5, 150e6, 200e6),))
TWO = replace(EMPTY, classes=(ShapeClass(5, 100e6, 200e6), ShapeClass(6, 20e6, 200e6)))


class Database:
    """Tables of records; a transaction that fails changes nothing."""

    def __init__(self) -> None:
        self.qos: dict[str, dict[str, str]] = {}
        self.queue: dict[str, dict[str, str]] = {}
        self.port: dict[str, str] = {}
        self.transactions: list[list[list[str]]] = []
        self.refuses = False
        self._made = 0

    def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        assert command[0] == "ovs-vsctl"
        words = [w for w in command[1:] if not w.startswith(("--timeout", "--db"))]
        steps: list[list[str]] = [[]]
        for word in words:
            if word == "--":
                steps.append([])
            else:
                steps[-1].append(word)
        if "find" in steps[0]:
            table, where = steps[0][-2:]
            records = self.qos if table == "qos" else self.queue
            found = [
                u for u, r in records.items() if where.removeprefix("external_ids:") in r["ids"]
            ]
            return 0, "\n".join(found) + "\n", ""
        if self.refuses:
            return 1, "", "ovs-vsctl: no\n"
        self.transactions.append(steps)
        names: dict[str, str] = {}
        for step in steps:
            if step[0].startswith("--id="):
                self._made += 1
                names[step[0].removeprefix("--id=")] = f"uuid{self._made}"
        return 0, "\n".join(filter(None, (self._do(s, names) for s in steps))) + "\n", ""

    def _do(self, step: list[str], names: dict[str, str]) -> str:
        words = [names.get(w, w) for w in step if not w.startswith("--")]
        verb, table, *rest = words
        records = {"qos": self.qos, "queue": self.queue}.get(table, {})
        if verb == "create":
            uuid = names[step[0].removeprefix("--id=")]
            ids = next(w for w in rest if w.startswith("external_ids:"))
            records[uuid] = {"ids": ids, **self._settings(rest, names)}
            return uuid
        if verb == "destroy":
            del records[rest[0]]
        elif verb == "clear":
            self.port.pop(rest[0], None)
        elif verb == "set" and table == "port":
            self.port[rest[0]] = names[rest[1].removeprefix("qos=")]
        elif verb == "set":
            records[rest[0]].update(self._settings(rest[1:], names))
        elif verb == "remove":
            for number in rest[2:]:
                del records[rest[0]][number]
        return ""

    @staticmethod
    def _settings(words: Sequence[str], names: dict[str, str]) -> dict[str, str]:
        found = {}
        for word in words:
            name, _, value = word.partition("=")
            if name == "queues":
                pairs = (pair.split("=") for pair in value.split(","))
                found.update({number: names[made] for number, made in pairs})
            elif name.startswith("queues:"):
                found[name.removeprefix("queues:")] = names[value]
            elif name.startswith("other_config:"):
                found[name.removeprefix("other_config:")] = value
        return found

    def queues(self, device: str) -> dict[str, tuple[str, str]]:
        """Minimum and maximum of the queues that a port has, by number."""
        qos = self.qos[self.port[device]]
        queues = {n: self.queue[u] for n, u in qos.items() if n.isdigit()}
        return {n: (q["min-rate"], q["max-rate"]) for n, q in queues.items()}


def test_a_port_gets_its_queues_changes_them_in_place_and_loses_them() -> None:
    database = Database()
    shaper = VsctlShaper(database)
    shaper.sync([EMPTY])
    assert database.queues("s1-a") == {"0": ("200000000", "200000000")}
    shaper.grow([ONE])
    shaper.shrink([ONE])
    assert database.queues("s1-a") == {
        "0": ("50000000", "200000000"),
        "5": ("150000000", "200000000"),
    }
    before = set(database.queue)
    shaper.grow([TWO])
    shaper.shrink([TWO])
    assert before < set(database.queue) and len(database.queue) == 3
    assert database.queues("s1-a")["5"] == ("100000000", "200000000")
    shaper.grow([EMPTY])
    shaper.shrink([EMPTY])
    assert set(database.queues("s1-a")) == {"0"} and len(database.queue) == 1
    shaper.clear()
    assert not database.qos and not database.queue and not database.port


def test_one_transaction_for_each_change_and_none_for_no_change() -> None:
    database = Database()
    shaper = VsctlShaper(database)
    shaper.sync([EMPTY])
    shaper.grow([ONE])
    shaper.shrink([ONE])
    made = len(database.transactions)
    assert made == 2
    shaper.grow([ONE])
    shaper.shrink([ONE])
    assert len(database.transactions) == made


def test_what_an_earlier_run_left_is_kept_until_it_is_known_what_is_wanted() -> None:
    database = Database()
    VsctlShaper(database).sync([ONE])
    again = VsctlShaper(database)
    again.begin([EMPTY])
    assert set(database.queues("s1-a")) == {"0", "5"}
    again.grow([TWO])
    again.shrink([TWO])
    assert set(database.queues("s1-a")) == {"0", "5", "6"}
    assert len(database.qos) == 1 and len(database.queue) == 3
    fresh = Database()
    VsctlShaper(fresh).begin([EMPTY])
    assert set(fresh.queues("s1-a")) == {"0"}


def test_a_refusal_is_one_line() -> None:
    database = Database()
    database.refuses = True
    with pytest.raises(ControllerError, match=r"ovs-vsctl refused to shape: ovs-vsctl: no$"):
        VsctlShaper(database).sync([ONE])
