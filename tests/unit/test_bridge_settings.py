"""Settings of Open vSwitch that ``adon doctor`` warns of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from network_provisioner.controllers.shaping.ovsdb import LEAST_BUFFER, bridge_warnings

UUID = ["uuid", "0e2a8b1c-0000-4000-8000-000000000001"]
EMPTY: list[Any] = ["set", []]
PORT = [["uuid", "p0"], "bond0", ["set", [["uuid", "i0"], ["uuid", "i1"]]]]


class Switches:
    """What ``ovs-vsctl --format=json list`` prints, and the kernel's buffer."""

    def __init__(self, bridge: list[Any], table: list[Any], buffer: int) -> None:
        self.bridge, self.table, self.buffer = bridge, table, buffer

    def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        if command[0] == "cat":
            return 0, f"{self.buffer}\n", ""
        columns = next(word for word in command if word.startswith("--columns="))
        row = {"Bridge": self.bridge, "Port": PORT}.get(command[-1], self.table)
        data = {"headings": columns.partition("=")[2].split(","), "data": [row]}
        return 0, json.dumps(data), ""


SECURE = ["s1", "00000000000000a1", "netdev", "secure", False, False, ["map", []], ["set", []]]


def bridge(*changed: tuple[int, Any]) -> list[Any]:
    """That bridge, with other values in these columns."""
    values = dict(changed)
    return [values.get(column, value) for column, value in enumerate(SECURE)]


@pytest.mark.parametrize(
    ("bridge", "table", "buffer", "words"),
    [
        (SECURE, [UUID, EMPTY, EMPTY], LEAST_BUFFER, []),
        (bridge((2, "system"), (3, EMPTY)), [UUID, EMPTY, EMPTY], 1,
         ["s1: fail_mode is standalone, expected secure"]),
        (bridge((2, "system"), (5, True)), [UUID, EMPTY, EMPTY], 1,
         ["s1: rstp_enable is true, expected false"]),
        (bridge((7, ["uuid", "p0"])), [UUID, EMPTY, EMPTY], LEAST_BUFFER,
         ["s1: port bond0 is a bond, whose packets come in by several OpenFlow ports"]),
        (bridge((6, ["map", [[0, UUID]]])), [UUID, 10, "evict"],
         212_992, ["a flow table holds 10 rules and evicts", "send buffer of 212992 bytes"]),
        (bridge((1, "00000000000000a9"), (3, "standalone"), (4, True)), [UUID, 10, "evict"], 1, []),
    ],
)  # fmt: skip
def test_what_costs_rules_or_packets_is_named(
    bridge: list[Any], table: list[Any], buffer: int, words: list[str]
) -> None:
    warnings = bridge_warnings(Switches(bridge, table, buffer), {0xA1})
    assert len(warnings) == len(words)
    assert all(part in warning for part, warning in zip(words, warnings, strict=True))


def test_where_there_is_no_open_vswitch_nothing_is_said() -> None:
    class Nobody:
        def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
            return 1, "", "ovs-vsctl: unix:/var/run/openvswitch/db.sock: connection failed"

    assert bridge_warnings(Nobody(), {1}) == []
