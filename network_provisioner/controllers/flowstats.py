"""Flow statistics replies (OpenFlow 1.3 §A.3.5.2), taken apart.

os-ken reads them too, a quarter of a millisecond for each rule. There are thousands of rules, most
of which were read before; so what a rule says is left as it came, for who knows it already.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_FLOW_STATISTICS = b"\0\1"
_FLOW_ENTRY = struct.Struct("!HBxIIHHHH4xQQQ")


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """One rule of a flow statistics reply; ``contents`` are its match and instructions."""

    table_id: int
    priority: int
    hard_timeout: int
    age_s: float
    cookie: int
    byte_count: int
    contents: bytes


class FlowReply:
    """A part of a flow statistics reply."""

    def __init__(self, data: bytes, xid: int) -> None:
        """Raises struct.error or ValueError for what is none."""
        self.xid = xid
        (self.flags,) = struct.unpack_from("!H", data, 10)
        self.body: list[FlowEntry] = []
        at = 16
        while at < len(data):
            size, table, *ages, priority, _, hard, _, cookie, _, count = _FLOW_ENTRY.unpack_from(
                data, at
            )
            if not _FLOW_ENTRY.size <= size <= len(data) - at:
                raise ValueError(f"a rule of {size} bytes")
            contents = data[at + _FLOW_ENTRY.size : at + size]
            age_s = ages[0] + ages[1] / 1e9
            self.body.append(FlowEntry(table, priority, hard, age_s, cookie, count, contents))
            at += size


def is_flow_reply(data: bytes) -> bool:
    """Whether a multipart reply is one of these."""
    return data[8:10] == _FLOW_STATISTICS
