"""What the delay link reads from frames and from its control socket."""

from __future__ import annotations

import struct

import pytest

from examples.testbed.delaylink import DelayLink, frame_wire_bytes
from examples.testbed.linkqueue import LinkQueue

IP_OFFSET, TCP_OFFSET, TCP_WORDS = 14, 34, 8


def frame(payload: int, segment: int) -> bytes:
    """A TCP frame over IPv4 with its virtio-net header, TCP options included."""
    kind = 1 if segment else 0
    header = struct.pack("<BBHHHH", 1, kind, TCP_OFFSET + TCP_WORDS * 4, segment, TCP_OFFSET, 16)
    tcp = bytes(12) + bytes([TCP_WORDS << 4]) + bytes(TCP_WORDS * 4 - 13)
    return header + bytes(TCP_OFFSET) + tcp + bytes(payload)


@pytest.fixture
def link() -> DelayLink:
    return DelayLink((-1, -1), (LinkQueue(1e6, 0.1, 1e5), LinkQueue(1e6, 0.1, 1e5)))


def test_a_plain_frame_counts_once():
    assert frame_wire_bytes(frame(1000, 0)) == 1000 + 66


def test_an_unsegmented_frame_counts_its_headers_per_packet():
    assert frame_wire_bytes(frame(3000, 1448)) == 3000 + 3 * 66


def test_a_cut_frame_does_not_fail():
    assert frame_wire_bytes(frame(0, 1448)[: 10 + TCP_OFFSET]) == TCP_OFFSET


def test_settings_apply_to_both_directions(link):
    link.change({"rate_bps": 5e6, "delay_s": 0.2, "loss": 0.5, "up": False})
    state = link.state()
    assert (state["rate_bps"], state["delay_s"], state["loss"], state["up"]) == (
        5e6,
        0.2,
        0.5,
        False,
    )
    assert state["limit_bytes"] == 1e5
