"""Whether relays help, and how they carry connections."""

from __future__ import annotations

from dataclasses import replace

import pytest

from network_provisioner.base.model import TransitRelay
from network_provisioner.relay.decision import helps, relay_text, settings
from network_provisioner.templates.advice import ENOUGH, HostTcp, PathFigures, TriedSetting

LONG = PathFigures(500e6, 0.053)  # 3.3 MB under way, more than Linux's usual windows
SMALL = HostTcp((4096, 131_072, 1 << 20), (4096, 16_384, 1 << 20))


@pytest.mark.parametrize(
    ("path", "streams", "helped", "part"),
    [
        (LONG, 1, True, "500 Mb/s times 53 ms are 3.31 MB under way, of which one stream may "),
        (LONG, 4, False, "4 streams, buffers by the system would reach"),
        (replace(LONG, src=SMALL, dst=SMALL), 4, True, "one stream may have 524 kB"),
        (replace(LONG, rate_bps=250e6), 1, False, "would reach 100% directly"),
        (replace(LONG, rate_bps=100e6, loss=1e-3), 1, True, "at a loss of 0.001"),
        (replace(LONG, rate_bps=100e6), 1, True, "2.1 MB, more than its queue takes"),
        (replace(LONG, rtt_s=0.0), 1, False, "would reach 100% directly"),
    ],
)
def test_it_helps_who_does_not_fill_the_path(
    path: PathFigures, streams: int, helped: bool, part: str
) -> None:
    helpful, why = helps(path, streams, 0)
    assert helpful is helped and part in why


def test_what_was_reached_goes_before_what_is_expected() -> None:
    well = tuple(TriedSetting(1, 0, 500e6, 0.96) for _ in range(ENOUGH))
    helped, why = helps(replace(LONG, tried=well), 1, 0)
    assert not helped and why.startswith("1 stream, buffers by the system reached 96% directly")


@pytest.mark.parametrize(
    ("path", "buffer_bytes"),
    [(LONG, 13_250_000), (replace(LONG, rtt_s=0.0), 1 << 20), (replace(LONG, rtt_s=60), 1 << 28)],
)
def test_buffers_hold_four_times_what_is_under_way(path: PathFigures, buffer_bytes: int) -> None:
    assert settings(path) == {
        "streams": 1, "congestion": "bbr", "buffer_bytes": buffer_bytes, "chunk_bytes": 1 << 18,
    }  # fmt: skip


def test_in_words() -> None:
    relay = TransitRelay("ra", "rb", 27_001, **settings(LONG), why="w")
    assert relay_text(relay) == (
        "ra and rb carry it over one connection (bbr, 13.2 MB) to port 27001: w"
    )
    many = relay_text(replace(relay, streams=4, tls=True))
    assert many == "ra and rb carry it over 4 connections (bbr, 13.2 MB, TLS) to port 27001: w"
    assert (relay_text(TransitRelay(why="no relay")), relay_text(None)) == ("direct: no relay", "")
