"""What Open vSwitch's own settings of a bridge would do to rules and packets."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from network_provisioner.base.errors import AdonError
from network_provisioner.controllers.shaping.shapes import Commands

LEAST_BUFFER = 4_000_000  # bytes, of sockets that the userspace datapath sends by
_BUFFER = "/proc/sys/net/core/wmem_default"
_COLUMNS = {"Bridge": "name,datapath_id,datapath_type,fail_mode,flow_tables",
            "Flow_Table": "_uuid,flow_limit,overflow_policy"}  # fmt: skip


def bridge_warnings(runner: Commands, dpids: Collection[int]) -> list[str]:
    """In words, what is set on bridges with these datapath ids that costs rules or packets; nothing
    where there is no Open vSwitch to ask."""
    try:
        bridges, tables = (_rows(runner, name) for name in _COLUMNS)
        found = [row for row in bridges if int(str(row["datapath_id"] or "0"), 16) in dpids]
        userspace = [row["name"] for row in found if row["datapath_type"] == "netdev"]
        buffer = int(runner.ask(["cat", _BUFFER])[1] or 0) if userspace else LEAST_BUFFER
    except (AdonError, OSError, ValueError, KeyError, TypeError):
        return []
    warnings = []
    for row in found:
        name = row["name"]
        if row["fail_mode"] != "secure":
            warnings.append(
                f"{name}: fail_mode is {row['fail_mode'] or 'standalone'}, expected secure: "
                f"ovs-vsctl set-fail-mode {name} secure"
            )
        for table in tables:
            if table["_uuid"] in (row["flow_tables"] or ()) and table["flow_limit"]:
                what = "and evicts rules" if table["overflow_policy"] == "evict" else "at most"
                warnings.append(f"{name}: a flow table holds {table['flow_limit']} rules {what}")
    if userspace and buffer < LEAST_BUFFER:
        warnings.append(
            f"{', '.join(userspace)}: userspace datapath with a send buffer of {buffer} bytes, "
            f"expected {LEAST_BUFFER}: sysctl net.core.wmem_default={LEAST_BUFFER}"
        )
    return warnings


def _rows(runner: Commands, table: str) -> list[dict[str, Any]]:
    words = ["ovs-vsctl", "--timeout=5", "--format=json", f"--columns={_COLUMNS[table]}", "list"]
    code, out, _ = runner.ask([*words, table])
    if code:
        raise ValueError(out)
    data = json.loads(out)
    return [dict(zip(data["headings"], map(_plain, row), strict=True)) for row in data["data"]]


def _plain(value: Any) -> Any:
    """A value of OVSDB (RFC 7047, section 5.1): None for an empty set, a UUID as its text, a map
    or set as a list of its values."""
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "uuid":
        return content
    if kind == "map":
        return [_plain(it) for _, it in content]
    return [_plain(it) for it in content] or None
