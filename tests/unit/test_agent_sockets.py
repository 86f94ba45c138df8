"""What an agent reports of its host's TCP connections, from the output of ss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from monitors.measurements.agent.host_reports import (
    Ends,
    SocketCounters,
    SocketReporter,
    parse_ss,
)

# iproute2 6.1, 5.x with a limit of the program's, IPv6 of both kinds, and what has sent nothing.
OUTPUT = """\
0 3235770 192.0.2.29:42314 192.0.2.37:5201 cubic wscale:7,7 rto:204 rtt:3.579/1.106 mss:8949 \
bytes_sent:50397 bytes_retrans:2122 bytes_acked:50394 send 900150880bps pacing_rate 1079917032bps \
delivery_rate 1011626080bps busy:438588ms rwnd_limited:433148ms(98.8%) notsent:3235770 minrtt:0.2
0      9      192.0.2.29%eth0:22    192.0.2.40:50112   \t cubic bytes_acked:7 pacing_rate \
1.8Mbps/2.5Mbps app_limited busy:91ms sndbuf_limited:60ms(65.9%)
0 0 [2001:db8::1]:443 [2001:db8::2]:50000 cubic bytes_acked:1
0 0 [::ffff:192.0.2.29]:80 [::ffff:192.0.2.41]:50001 cubic wscale:7,7 rto:204 lastsnd:5
0 0 127.0.0.1:5432 127.0.0.1:50002 cubic bytes_acked:3
0 0 192.0.2.29:5433 192.0.2.29:50003 cubic bytes_acked:3
"""


def test_the_output_of_ss() -> None:
    assert parse_ss(OUTPUT) == {
        ("192.0.2.29", 42314, "192.0.2.37", 5201): SocketCounters(
            50394, 438588, 433148, 0, 3235770
        ),
        ("192.0.2.29", 22, "192.0.2.40", 50112): SocketCounters(7, 91, 0, 60, 0, 2.5e6),
        ("2001:db8::1", 443, "2001:db8::2", 50000): SocketCounters(1),
        ("192.0.2.29", 80, "192.0.2.41", 50001): SocketCounters(),
    }
    with pytest.raises(ValueError, match="'usage: ss', expected queues"):
        parse_ss("usage: ss\n")


ENDS: Ends = ("192.0.2.29", 42314, "192.0.2.37", 5201)
NOW = SocketCounters(1000, 500, 100, 0, 9)


class Host:
    """Connections, second by second."""

    def __init__(self) -> None:
        self.now, self.counters = 100.0, {}
        self.reporter = SocketReporter(lambda: dict(self.counters), lambda: self.now)
        self.posted: list[list[Any]] = []

    def second(self, counters: Mapping[Ends, SocketCounters]) -> list[Any]:
        """What is reported after one."""
        self.now, self.counters = self.now + 1, dict(counters)
        self.posted = []
        self.reporter.observe(lambda body: self.posted.append(body["sockets"]))
        return self.posted


def test_what_connections_did_is_reported_each_second() -> None:
    host = Host()
    assert host.second({ENDS: NOW}) == [], "nobody knows since when"
    later = replace(NOW, acked=126_000, busy=1250, window=350)
    assert host.second({ENDS: later}) == [[[*ENDS, 1.0, 125_000, 0.75, 0.25, 0.0, True, 0.0]]]
    # Another one with the same ports, and one that began meanwhile.
    other = (*ENDS[:3], 5202)
    new = SocketCounters(7, 10, 0, 0, 0, 2e6)
    assert host.second({ENDS: new, other: replace(new, acked=9)}) == [
        [[*other, 1.0, 9, 0.01, 0.0, 0.0, False, 2e6], [*ENDS, 1.0, 7, 0.01, 0.0, 0.0, False, 2e6]]
    ]


def test_who_has_stopped_sending_is_reported_for_a_while_and_then_nobody() -> None:
    host = Host()
    host.second({})
    host.second({ENDS: replace(NOW, waiting=0)})
    idle = [host.second({ENDS: replace(NOW, waiting=0)}) for _ in range(30)]
    assert idle[0] == [[[*ENDS, 1.0, 0, 0.0, 0.0, 0.0, False, 0.0]]]
    assert idle[-5:].count([[]]) == 1, "the broker knows that somebody looks"
    assert idle[-5:].count([]) == 4
