"""Whether promises were kept: the rules one by one, and a broker that reports those that were
not."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_rig import demo_network
from made_transit import made_transit
from promise_rig import MB, Day

from network_provisioner.base.controller import LinkCounter, SwitchStatus
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import Transit, TransitRequest
from network_provisioner.selection.promise import BROKEN, KEPT, LESS, UNKNOWN, Sample, judge, where
from network_provisioner.state.connections import KEPT_S, ReportedSockets, Sender, SocketPeriod

PATH = ("mu", "s1", "s2", "tacc")
ROUTED = ("mu", "s1", "r1", "s2", "tacc")
GREEDY = Sender(60e6, busy=1.0, window=0.0, buffer=0.0, waiting=1.0)


def sample(first: float, last: float, sender: Sender | None = GREEDY, **more: Any) -> Sample:
    """Six seconds at 100 Mb/s, which are 75 MB."""
    counted = (("s1", round(first * MB)), ("s2", round(last * MB)))
    return Sample(6.0, 100e6, **{"path": PATH, "counted": counted, "sender": sender, **more})


@pytest.mark.parametrize(
    ("seen", "state", "words", "link"),
    [
        (sample(75, 75), KEPT, "", ""),
        (sample(75, 75, None), KEPT, "", ""),
        (sample(64, 63), KEPT, "", ""),  # what switches count is up to 0.5 s old
        (
            sample(45, 45),
            BROKEN,
            "60 Mb/s of 100 Mb/s arrived, and its sender has more to send",
            "",
        ),
        (sample(45, 35), BROKEN, "its sender has more to send", "s1-s2"),
        (sample(45, 45, repaired=frozenset({"s1"})), BROKEN, "has more to send", "s1-s2"),
        (sample(45, 45, repaired=frozenset({"s2"})), BROKEN, "has more to send", "s2-tacc"),
        (sample(75, 30, None), BROKEN, "60% was lost", "s1-s2"),
        (sample(75, 30, None, path=ROUTED), BROKEN, "60% was lost", "s1-r1-s2"),
        # The bytes arrived, but not by way of these switches.
        (sample(0, 0), BROKEN, "60 Mb/s went another way", "mu-s1"),
        (sample(45, 2), BROKEN, "went another way", "s1-s2"),
        (sample(75, 2, replace(GREEDY, acked_bps=99e6)), BROKEN, "went another way", "s1-s2"),
        # Not the network.
        (sample(45, 45, replace(GREEDY, waiting=0.2)), LESS, "has no more to send", ""),
        (sample(45, 45, replace(GREEDY, busy=0.6)), LESS, "has no more to send", ""),
        (sample(45, 45, replace(GREEDY, busy=0.6), disks=(0.8, 0.0)), LESS, "sender waits for", ""),
        (sample(45, 45, replace(GREEDY, window=0.4)), LESS, "the receiver takes no more", ""),
        (sample(45, 45, replace(GREEDY, window=0.4), disks=(0, 0.8)), LESS, "its disk", ""),
        (sample(45, 45, replace(GREEDY, buffer=0.4)), LESS, "buffer is too small", ""),
        (sample(45, 45, replace(GREEDY, paced_bps=60e6)), LESS, "sends 60 Mb/s at most", ""),
        # Silence accuses nobody.
        (sample(45, 45, None), UNKNOWN, "no agent reports its connections", ""),
        (sample(0, 0, counted=()), UNKNOWN, "report no byte counts", ""),
        (sample(0, 0, None), UNKNOWN, "no agent reports", ""),
    ],
)
def test_what_became_of_a_promise(seen: Sample, state: str, words: str, link: str) -> None:
    verdict = judge(seen)
    assert (verdict.state, verdict.link) == (state, link)
    assert words in verdict.why


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("sw-1-sw-2", "on link sw-1-sw-2"),
        ("sw-1-r-1-sw-2", "between sw-1 and sw-2"),
        ("", "between mu and tacc"),
    ],
)
def test_where_a_promise_is_broken(link: str, words: str) -> None:
    path = ("mu", "sw-1", *(("r-1",) if "r-1" in link else ()), "sw-2", "tacc")
    assert where(link, path) == words


def test_of_what_a_sender_did_the_seconds_that_are_judged_count() -> None:
    sockets = ReportedSockets(demo_network())
    ends = ("10.10.0.1", 40001), ("10.10.0.2", 5001)
    sockets.take_in("mu", "mu", [SocketPeriod(*ends, 4.0, 4 * MB, 1.0, 0.0, 0.0, True)], 104.0)
    sender = sockets.sender(made_transit("a", "mu", "tacc", "installed"), 102.0, 104.0)
    assert sender is not None and (sender.acked_bps, sender.busy) == (8e6, 1.0)


def test_hosts_that_report_no_more_are_forgotten() -> None:
    sockets = ReportedSockets(demo_network())
    for at in range(100):
        sockets.take_in(f"mu/{at}", "mu", [], float(at))
    assert len(sockets._reports["mu"]) == KEPT_S


@pytest.fixture
def day(tmp_path: Path) -> Day:
    return Day(tmp_path / "s")


def test_a_broken_promise_is_told_within_ten_seconds_and_that_it_is_kept_again(day: Day) -> None:
    for _ in range(12):
        day.second(25, 25, waiting=True)
    assert (day.kept.state, day.news) == (KEPT, [])
    seconds = 0
    while not day.news:
        day.second(12, 9, waiting=True)
        seconds += 1
    assert seconds < 10
    assert str(day.news[0]).startswith("transit 'a' gets less than it was promised: ")
    assert str(day.news[0]).endswith(", on link s1-s2")
    assert (day.kept.state, day.kept.link) == (BROKEN, "s1-s2")
    for _ in range(20):
        day.second(12, 9, waiting=True)
    assert len(day.news) == 1
    for _ in range(12):
        day.second(25, 25, waiting=True)
    assert [bool(news.at) for news in day.news] == [False, True]
    day.rig.broker.release("a")
    kept = day.kept
    assert kept.state == KEPT and kept.broken_s > 20 and kept.kept_s > 15
    assert Transit.from_dict(day.rig.broker.get("a").as_dict()).usage.kept == kept


def test_silence_ends_no_alarm(day: Day) -> None:
    while not day.news:
        day.second(12, 9, waiting=True)
    day.controller.silent = True
    for _ in range(3):
        day.second(0, 0, waiting=True)
    assert (day.kept.state, len(day.news)) == (UNKNOWN, 1)
    day.controller.silent = False
    for _ in range(20):
        day.second(12, 9, waiting=True)
    assert (day.kept.state, len(day.news)) == (BROKEN, 1)


def test_a_rate_that_was_raised_is_owed_from_then_on(day: Day) -> None:
    day.seconds(12, 25)
    day.rig.broker.change("a", min_bps=40 * MB, max_bps=40 * MB)
    day.seconds(1, 25)
    assert day.kept.state == KEPT


def test_one_of_many_is_missed_no_later(day: Day) -> None:
    day.rig.broker.ask(
        [
            TransitRequest(f"t{n}", "mu", "local", min_bps=1e4, flows=(Flow(dst_ports=(n, n)),))
            for n in range(1, 600)
        ]
    )
    day.seconds(12, 25)
    seconds = 0
    while not day.news:
        day.seconds(1, 9)
        seconds += 1
    assert seconds < 13 and "transit 'a'" in str(day.news[0])


def test_a_link_that_loses_little_is_found_in_time(day: Day) -> None:
    """TCP slows down where a link gives less, and all switches count about the same."""
    while not day.news:
        day.second(9.2, 9, waiting=True)
    assert str(day.news[0]).endswith("more to send, between mu and tacc") and day.kept.link == ""
    for _ in range(40):
        day.second(9.2, 9, waiting=True)
    assert (day.kept.state, day.kept.link) == (BROKEN, "s1-s2") and len(day.news) == 1
    assert day.kept.why.endswith("on link s1-s2")


def test_a_link_that_is_full_is_named(day: Day) -> None:
    sent, controller = [0], day.controller

    def counters() -> list[LinkCounter]:  # 200 Mb/s, of which the transit has 9
        sent[0] += 25_000_000
        return [LinkCounter("s1", "s2", sent[0], day.rig.clock.now)]

    controller.counters = counters  # type: ignore[method-assign]
    while not day.news:
        day.second(9, 9, waiting=True)
    assert day.kept.link == "s1-s2"


def test_who_sends_little_is_not_accused_and_silence_accuses_nobody(day: Day) -> None:
    for _ in range(12):
        day.second(5, 5, waiting=False)
    assert (day.kept.state, day.kept.why.partition(": ")[2]) == (
        LESS,
        "the sender has no more to send",
    )
    day.controller.silent = True
    day.second(0, 0, waiting=True)
    assert day.kept.state == UNKNOWN
    day.controller.silent = False
    for _ in range(12):  # and the agent
        day.second(5, 5)
    assert day.kept.state == UNKNOWN
    for _ in range(12):  # at its full rate, and then it is done
        day.second(25, 25, waiting=True)
    for _ in range(20):
        day.second(0, 0)
    assert day.news == [] and day.kept.broken_s == 0 and day.kept.kept_s > 5


def test_packets_that_leave_the_path_are_missed(day: Day) -> None:
    for _ in range(6):
        day.second(25, 25, waiting=True)
    day.controller.statuses = [SwitchStatus("s1", "switch s1", True, 0.0, "", {"rules": 1})]
    for _ in range(9):
        day.second(0, 0, acked=25, waiting=True)
    assert day.kept.state == BROKEN and "went another way" in day.kept.why
    assert ["on link mu-s1" in news.reason for news in day.news] == [True]


@pytest.mark.long
def test_of_a_thousand_slow_senders_at_most_one_is_accused() -> None:
    """Of senders slower than what they were granted, by chance in whichever way, with counters that
    are old by chance."""
    chance, accused = random.Random(7), 0
    for _ in range(1000):
        share, why = (
            chance.uniform(0.01, 0.95),
            chance.choice(["idle", "window", "buffer", "paced"]),
        )
        sender = Sender(
            share * 100e6,
            busy=chance.uniform(0.1, 1.0) if why == "idle" else 1.0,
            window=chance.uniform(0.15, 1.0) if why == "window" else 0.0,
            buffer=chance.uniform(0.15, 1.0) if why == "buffer" else 0.0,
            waiting=chance.uniform(0.0, 0.6) if why == "idle" else 1.0,
            paced_bps=share * 100e6 if why == "paced" else 0.0,
        )
        # So many looks in a row are needed for an alarm.
        looks = [
            sample(*(75 * share - 12.5 * share * chance.uniform(0, 0.5) for _ in "ab"), sender)
            for _ in range(4)
        ]
        accused += all(judge(look).state == BROKEN for look in looks)
    assert accused <= 1
