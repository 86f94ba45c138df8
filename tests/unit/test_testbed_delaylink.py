"""The emulated link keeps what it promises, whatever is sent through it."""

from __future__ import annotations

import math
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.testbed.delaylink import DelayLink, frame_wire_bytes
from examples.testbed.linkqueue import LinkQueue, wire_bytes

RATES = st.floats(1e3, 1e10)
DELAYS = st.floats(0, 1)
PACKETS = st.lists(st.tuples(st.floats(0, 0.1), st.integers(1, 70_000)), max_size=60)


def through(queue: LinkQueue, packets: list[tuple[float, int]]) -> list[tuple[float, float, int]]:
    """Offer packets given as (gap, bytes); (offered, out, bytes) of those that come out."""
    now, out = 0.0, []
    for gap, n_bytes in packets:
        now += gap
        left = queue.offer(now, n_bytes)
        if left is not None:
            out.append((now, left, n_bytes))
    return out


@given(RATES, DELAYS, st.floats(0, 1e6), PACKETS)
def test_no_packet_is_lost_early_too_fast_or_out_of_order(rate, delay, limit, packets):
    queue = LinkQueue(rate, delay, limit)
    out = through(queue, packets)
    assert queue.accepted == len(out)
    assert queue.accepted + queue.dropped == len(packets)
    assert queue.accepted_bytes == sum(n for _, _, n in out)
    assert all(a[1] <= b[1] for a, b in pairwise(out))
    assert all(left >= at + delay for at, left, _ in out)
    for i, (_, first, _) in enumerate(out):
        carried = 0
        for _, left, n_bytes in out[i + 1 :]:
            carried += n_bytes
            assert carried * 8 <= (left - first) * rate * (1 + 1e-6) + 1e-3


@given(RATES, st.floats(0, 1e6), PACKETS)
def test_the_queue_stays_within_its_limit(rate, limit, packets):
    queue, now, largest = LinkQueue(rate, 0.0, limit), 0.0, 0
    for gap, n_bytes in packets:
        now += gap
        if queue.offer(now, n_bytes) is not None:
            largest = max(largest, n_bytes)
        # An idle link takes one packet of any size.
        assert queue.backlog_bytes(now) <= max(limit, largest) * (1 + 1e-6) + 1e-3


@given(RATES, DELAYS, PACKETS)
def test_without_a_limit_nothing_is_dropped(rate, delay, packets):
    queue = LinkQueue(rate, delay, math.inf)
    assert len(through(queue, packets)) == len(packets)


@given(PACKETS, DELAYS)
def test_an_infinite_rate_only_delays(packets, delay):
    out = through(LinkQueue(math.inf, delay, 0.0), packets)
    assert len(out) == len(packets)
    assert all(left == at + delay for at, left, _ in out)


@given(st.lists(st.tuples(st.floats(0, 0.1), st.integers(1, 9000), DELAYS), max_size=40))
def test_a_delay_that_shrinks_lets_nothing_overtake(packets):
    queue, now, out = LinkQueue(1e8, 0.0, math.inf), 0.0, []
    for gap, n_bytes, delay in packets:
        now += gap
        queue.delay_s = delay
        out.append(queue.offer(now, n_bytes))
    assert all(a <= b for a, b in pairwise(out))


@given(st.integers(1, 65_000), st.integers(1, 9000), st.integers(34, 120))
def test_wire_bytes_are_those_of_the_real_packets(payload, segment, header):
    sizes = [min(segment, payload - at) + header for at in range(0, payload, segment)]
    assert wire_bytes(header + payload, segment, header) == sum(sizes)


TCP_OFFSET, TCP_WORDS = 34, 8


def frame(payload: int, segment: int) -> bytes:
    """A TCP frame over IPv4 with its virtio-net header, TCP options included."""
    kind = 1 if segment else 0
    header = struct.pack("<BBHHHH", 1, kind, TCP_OFFSET + TCP_WORDS * 4, segment, TCP_OFFSET, 16)
    tcp = bytes(12) + bytes([TCP_WORDS << 4]) + bytes(TCP_WORDS * 4 - 13)
    return header + bytes(TCP_OFFSET) + tcp + bytes(payload)


@pytest.fixture
def link() -> DelayLink:
    return DelayLink((-1, -1), (LinkQueue(1e6, 0.1, 1e5), LinkQueue(1e6, 0.1, 1e5)))


def test_what_a_frame_counts():
    assert wire_bytes(1514, 0, 54) == 1514
    assert frame_wire_bytes(frame(1000, 0)) == 1000 + 66
    assert frame_wire_bytes(frame(3000, 1448)) == 3000 + 3 * 66  # unsegmented: headers per packet
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
