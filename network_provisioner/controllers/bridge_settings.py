"""What Open vSwitch's own settings of a bridge would do to rules and packets."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from network_provisioner.base.controller import ControllerError
from network_provisioner.base.errors import AdonError
from network_provisioner.controllers.shaping.ovsdb import plain
from network_provisioner.controllers.shaping.shapes import Commands

LEAST_BUFFER = 4_000_000  # bytes, of sockets that the userspace datapath sends by
_BUFFER = "/proc/sys/net/core/wmem_default"
_BRIDGE = "name,datapath_id,datapath_type,fail_mode,stp_enable,rstp_enable,flow_tables,ports"
_COLUMNS = {"Bridge": _BRIDGE, "Flow_Table": "_uuid,flow_limit,overflow_policy",
            "Port": "_uuid,name,interfaces"}  # fmt: skip
_TREES = ("stp_enable", "rstp_enable")
_TREE = "its ports drop packets for half a minute, or for as long as there is another way"


def bridge_warnings(runner: Commands, dpids: Collection[int]) -> list[str]:
    """In words, what is set on bridges with these datapath ids that costs rules or packets; nothing
    where there is no Open vSwitch to ask."""
    try:
        bridges, tables, ports = (_rows(runner, *item, 5) for item in _COLUMNS.items())
        ours = [row for row in bridges if _dpid(row) in dpids]
        userspace = [row["name"] for row in ours if row["datapath_type"] == "netdev"]
        buffer = int(runner.ask(["cat", _BUFFER])[1] or 0) if userspace else LEAST_BUFFER
    except (AdonError, OSError, ValueError, KeyError, TypeError):
        return []
    warnings = []
    for row in ours:
        name = row["name"]
        warnings += [
            f"{name}: {key} is {value}, expected {wanted}, as {why}: ovs-vsctl set bridge {name} "
            f"{key}={wanted}"
            for key, value, wanted, why in _faults(row)
        ]
        warnings += [
            f"{name}: port {port['name']} is a bond, whose packets come in by several OpenFlow "
            "ports, expected one: let the kernel bond them"
            for port in ports
            if isinstance(port["interfaces"], list) and port["_uuid"] in (row["ports"] or ())
        ]
        for table in tables:
            if table["_uuid"] in row["flow_tables"].values() and table["flow_limit"]:
                what = "and evicts rules" if table["overflow_policy"] == "evict" else "at most"
                warnings.append(f"{name}: a flow table holds {table['flow_limit']} rules {what}")
    if userspace and buffer < LEAST_BUFFER:
        warnings.append(
            f"{', '.join(userspace)}: userspace datapath with a send buffer of {buffer} bytes, "
            f"expected {LEAST_BUFFER}: sysctl net.core.wmem_default={LEAST_BUFFER}"
        )
    return warnings


def insecure_bridges(runner: Commands, dpids: Collection[int]) -> dict[int, str]:
    """What is wrong with ``fail_mode`` and spanning trees of the bridges with these datapath ids,
    in words; those that the database does not have are left out. Raises ControllerError where it
    does not answer, MissingError for no ``ovs-vsctl``."""
    columns = ",".join(("datapath_id,fail_mode", *_TREES))
    ours = (row for row in _rows(runner, "Bridge", columns, 1) if _dpid(row) in dpids)
    insecure = {
        _dpid(row): "; ".join(
            f"has {key} {value}, expected {wanted}: {why}"
            for key, value, wanted, why in _faults(row)
        )
        for row in ours
    }
    return {dpid: faults for dpid, faults in insecure.items() if faults}


def _dpid(row: Mapping[str, Any]) -> int:
    return int(row["datapath_id"] or "0", 16)


def _faults(row: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Settings of a bridge: what they are, what they should be, and why."""
    if row["fail_mode"] != "secure":
        mode = row["fail_mode"] or "standalone"
        yield "fail_mode", mode, "secure", "without the broker it is a plain switch"
    for key in _TREES:
        if row[key]:
            yield key, "true", "false", _TREE


def _rows(runner: Commands, table: str, columns: str, timeout_s: int) -> list[dict[str, Any]]:
    """Raises ControllerError, MissingError."""
    words = ["ovs-vsctl", f"--timeout={timeout_s}", "--format=json", f"--columns={columns}", "list"]
    code, out, error = runner.ask([*words, table])
    if code != 0:
        why = error.strip().rpartition("\n")[2] or f"exit code {code}"
        raise ControllerError(f"the database of Open vSwitch does not answer: {why}")
    try:
        return [
            dict(zip(columns.split(","), map(plain, row), strict=True))
            for row in json.loads(out)["data"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ControllerError(
            f"the database of Open vSwitch answered what cannot be read: {error!r}"
        ) from error
