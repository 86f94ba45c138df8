"""What is known for a decision: transfers first, probes where there are none of late."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_world import Measurements

from adon.service.wiring import measured_best_effort
from monitors.archive import knowledge
from monitors.archive.archive import Archive, Measurement
from monitors.archive.knowledge import FRESH_S, Knowledge
from monitors.base.estimates import Estimate
from site_selector.estimates.rates import Network, path_estimates

NOW = 1e6
UNITS = {"throughput": "bit/s", "tcp_throughput": "bit/s", "rtt": "s", "path_throughput": "bit/s",
         "compute_rate": "byte/s", "runtime": "s", "queue_wait": "s", "loss": "1",
         "jitter": "s", "disk_rate": "bit/s", "free_space": "byte"}  # fmt: skip


def archive_of(*facts: tuple[str, str, float, float]) -> Archive:
    """Of metric, subject, value and age."""
    archive = Archive(":memory:")
    archive.record_many(
        Measurement(f"{n}", metric, subject, value, UNITS[metric], NOW - age, f"by-{metric}")
        for n, (metric, subject, value, age) in enumerate(facts)
    )
    return archive


def test_fresh_transfers_count_whatever_probes_say() -> None:
    archive = archive_of(
        ("throughput", "mu>tacc", 1e8, FRESH_S), ("tcp_throughput", "mu/a>tacc/b", 9e8, 1.0)
    )
    estimate = knowledge.gamma_a(archive, "mu", "tacc", NOW)
    assert estimate == archive.estimate("throughput", "mu>tacc", NOW) or estimate is not None
    assert estimate is not None and (estimate.value, estimate.metric, estimate.note) == (
        1e8,
        "throughput",
        "",
    )


def moved(sizes: list[float], age: float = 10.0) -> Archive:
    """Transfers of 3 s of hand-shakes and 80 Mb/s."""
    archive = Archive(":memory:")
    archive.record_many(
        Measurement(
            f"{n}", "throughput", "mu>tacc", size * 8 / (3 + size / 1e7), "bit/s", NOW - age,
            "transfer", details={"bytes": size, "seconds": 3 + size / 1e7},
        )
        for n, size in enumerate(sizes)
    )  # fmt: skip
    return archive


def test_hand_shakes_are_told_apart_from_the_path() -> None:
    known = knowledge.known_estimates(moved([1e6, 2e6, 4e6, 9e6]), ["mu", "tacc"], [], NOW)
    assert known["transfer_rate", "mu>tacc"].value == pytest.approx(80e6)
    assert known["transfer_start", "mu>tacc"].value == pytest.approx(3.0)
    (path, back) = path_estimates({}, ["mu", "tacc"], Measurements(known), Network(), NOW).values()
    assert path.gamma_a.value == pytest.approx(80e6)
    assert path.gamma_a.note == "told apart by transfers of different sizes"
    assert back.gamma_a.source == "default"


def staged(n: int, files: int, n_bytes: float, seconds: float, protocol: str) -> Measurement:
    details = {"bytes": n_bytes, "seconds": seconds, "files": files, "goodput_bps": 1.0,
               "tool": "pegasus-transfer", "protocol": protocol}  # fmt: skip
    return Measurement(f"{protocol}{n}", "job_transfer", "mu>tacc", n_bytes, "byte",
                       NOW - 9 - n, "hooks", details=details)  # fmt: skip


def test_each_file_of_a_job_shakes_hands_as_its_tool_does() -> None:
    """2 s for each file with one protocol and 9 s with another, at 80 Mb/s."""
    jobs = [(1, 1e7), (4, 2e7), (9, 9e7), (3, 1e6), (6, 3e6)]
    archive = Archive(":memory:")
    archive.record_many(
        staged(n, files, size, per_file * files + size / 1e7, protocol)
        for protocol, per_file in (("gsiftp", 2.0), ("scp", 9.0))
        for n, (files, size) in enumerate(jobs, 0 if protocol == "gsiftp" else 2)
    )
    known = knowledge.known_estimates(archive, ["mu", "tacc"], [], NOW)
    assert known["transfer_rate", "mu>tacc"].value == pytest.approx(80e6)
    assert known["transfer_start", "mu>tacc"].value == pytest.approx(2.0)
    source = Measurements(
        {**known, ("transfer_setup", "mu>tacc"): Estimate(5.0, 0.0, 3, NOW, "test", "s")}
    )
    path = path_estimates({}, ["mu", "tacc"], source, Network(), NOW)["mu", "tacc"]
    assert path.further.value == pytest.approx(2.0)
    assert path.start_s == pytest.approx(5.0 + 2.0)  # of the job, with its first file


def test_what_was_measured_in_the_future_alone_is_told() -> None:
    archive = archive_of(("queue_wait", "mu", 4.0, -9000.0))
    known = knowledge.known_estimates(archive, ["mu"], [], NOW)
    assert known["queue_wait", "mu"].at == NOW + 9000


@pytest.mark.parametrize(
    ("seconds", "files", "rate_bps", "first_s", "further_s"),
    [
        (10.0, 1, 80e6 / (10 - 3), 3.0, 0.5),
        (10.0, 5, 80e6 / (10 - 5), 3.0, 0.5),
        (2.0, 1, 80e6 / (2 - 1.8), 1.8, 0.3),  # shorter than they: they were most of it
    ],
)
def test_what_one_transfer_took_was_hand_shakes_too(
    seconds: float, files: int, rate_bps: float, first_s: float, further_s: float
) -> None:
    archive = Archive(":memory:")
    for n, (n_bytes, count) in enumerate([(1e6, 1), (1e6, 5), (9e7, 1), (9e7, 5), (4e7, 3)]):
        took = {"bytes": n_bytes, "files": count, "seconds": 3 + 0.5 * (count - 1) + n_bytes / 1e7}
        archive.record(
            Measurement(f"a{n}", "job_transfer", "mu>tacc", n_bytes, "byte", NOW, "t", details=took)
        )
    details = {"bytes": 1e7, "files": files, "seconds": seconds}
    archive.record(
        Measurement("b", "job_transfer", "tacc>isi", 1e7, "byte", NOW, "t", details=details)
    )
    archive.record(
        Measurement(
            "c", "throughput", "tacc>isi", 8e7 / seconds, "bit/s", NOW, "t", details=details
        )
    )
    known = knowledge.known_estimates(archive, ["mu", "tacc", "isi"], [], NOW)
    paths = path_estimates({}, ["mu", "tacc", "isi"], Measurements(known), Network(), NOW)
    path = paths["tacc", "isi"]
    assert (path.first.value, path.further.value) == pytest.approx((first_s, further_s), rel=1e-3)
    assert path.gamma_a.value == pytest.approx(rate_bps, rel=1e-3)


def test_old_or_like_transfers_tell_no_hand_shakes() -> None:
    for archive in (moved([1e6, 1.1e6, 1.2e6, 1e6]), moved([1e6, 2e6, 4e6, 9e6], FRESH_S + 1)):
        source = Knowledge(archive)
        assert source.estimate("transfer_rate", "mu>tacc", NOW) is None
        assert source.estimate("throughput", "mu>tacc", NOW) is not None


def test_newer_probes_stand_in_for_old_transfers() -> None:
    old = ("throughput", "mu>tacc", 1e8, FRESH_S + 100)
    archive = archive_of(old, ("tcp_throughput", "mu/a>tacc/b", 9e8, FRESH_S + 50))
    estimate = knowledge.gamma_a(archive, "mu", "tacc", NOW)
    assert estimate is not None
    assert (estimate.value, estimate.metric, estimate.subject) == (
        9e8,
        "tcp_throughput",
        "mu/a>tacc/b",
    )
    assert estimate.source == "by-tcp_throughput"
    assert estimate.note == "by tcp_throughput of mu/a>tacc/b"
    older = archive_of(old, ("tcp_throughput", "mu/a>tacc/b", 9e8, FRESH_S + 150))
    estimate = knowledge.gamma_a(older, "mu", "tacc", NOW)
    assert estimate is not None and estimate.value == 1e8


def test_the_fastest_pair_of_hosts_of_late_says_what_the_path_carries() -> None:
    archive = archive_of(
        ("tcp_throughput", "mu/a>tacc/b", 2e8, 10.0),
        ("tcp_throughput", "mu/c>tacc", 5e8, 20.0),
        ("tcp_throughput", "mu/d>tacc", 9e9, FRESH_S + 100),
        ("tcp_throughput", "tacc>mu", 8e9, 1.0),
        ("tcp_throughput", "mux>tacc", 8e9, 1.0),
    )
    estimate = knowledge.gamma_a(archive, "mu", "tacc", NOW)
    assert estimate is not None and (estimate.value, estimate.subject) == (5e8, "mu/c>tacc")


def test_probes_go_the_way_of_best_effort_alone() -> None:
    archive = archive_of(("tcp_throughput", "mu>tacc", 2e8, 10.0))
    assert knowledge.path_throughput(archive, "mu", "tacc", "l2", NOW) is None
    estimate = knowledge.path_throughput(archive, "mu", "tacc", "best_effort", NOW)
    assert estimate is not None and estimate.value == 2e8


def test_rtt_of_a_path_is_that_of_its_nearest_hosts() -> None:
    archive = archive_of(("rtt", "mu/a>tacc", 0.06, 1.0), ("rtt", "mu/b>tacc", 0.05, 2.0))
    estimate = knowledge.path_state(archive, "rtt", "mu", "tacc", NOW)
    assert estimate is not None and estimate.value == 0.05


def test_rates_before_runtimes() -> None:
    archive = archive_of(("runtime", "t@mu", 5.0, 1.0))
    estimate = knowledge.gamma_c(archive, "t", "mu", NOW)
    assert estimate is not None and (estimate.value, estimate.metric) == (5.0, "runtime")
    archive.record(Measurement("r", "compute_rate", "t@mu", 7.0, "byte/s", NOW, "x"))
    estimate = knowledge.gamma_c(archive, "t", "mu", NOW)
    assert estimate is not None and (estimate.value, estimate.metric) == (7.0, "compute_rate")
    assert knowledge.queue_wait(archive, "mu", NOW) is None


facts = st.lists(
    st.tuples(
        st.sampled_from(("throughput", "tcp_throughput", "path_throughput", "rtt", "queue_wait")),
        st.sampled_from(("a>b", "a/1>b/2", "a/2>b", "b>a", "a>b/best_effort", "a>b/l2", "a")),
        st.floats(0.001, 1e9),
        st.floats(-3 * FRESH_S, 5 * FRESH_S),
    ),
    max_size=25,
)
questions = st.sampled_from(
    (("throughput", "a>b"), ("path_throughput", "a>b/best_effort"), ("path_throughput", "a>b/l2"),
     ("rtt", "a>b"), ("queue_wait", "a"))
)  # fmt: skip


@given(facts, questions)
def test_nothing_later_is_used(
    known: list[tuple[str, str, float, float]], question: tuple[str, str]
) -> None:
    everything, past = archive_of(*known), archive_of(*[k for k in known if NOW - k[3] <= NOW])
    estimate = Knowledge(everything).estimate(*question, NOW)
    again = Knowledge(past).estimate(*question, NOW)
    assert estimate == again
    assert estimate is None or estimate.at <= NOW


@given(facts, questions)
def test_with_transfers_alone_nothing_is_other_than_the_archive_has_it(
    known: list[tuple[str, str, float, float]], question: tuple[str, str]
) -> None:
    archive = archive_of(*[k for k in known if k[0] != "tcp_throughput" and "/1" not in k[1]])
    plain = archive.estimate(*question, NOW)
    estimate = Knowledge(archive).estimate(*question, NOW)
    if plain is not None or question[0] != "rtt":
        assert (estimate is None) == (plain is None)
    if estimate is not None and plain is not None:
        assert (
            estimate.value, estimate.spread, estimate.count,
            estimate.at, estimate.source, estimate.unit,
        ) == (
            plain.value, plain.spread, plain.count, plain.at, plain.source, plain.unit,
        )  # fmt: skip


def test_the_site_selector_and_the_broker_read_it() -> None:
    archive = archive_of(("tcp_throughput", "mu/a>tacc", 2e8, 10.0))
    paths = path_estimates({}, ("mu", "tacc"), Knowledge(archive), Network(), NOW)
    believed = paths["mu", "tacc"].gamma_a
    assert (believed.value, believed.source) == (2e8, "archive")
    assert believed.note == "by tcp_throughput of mu/a>tacc"
    assert paths["tacc", "mu"].gamma_a.source == "default"
    assert measured_best_effort(archive, lambda: NOW)("mu", "tacc", "ada") == (2e8, 10.0)
    assert measured_best_effort(archive, lambda: NOW)("tacc", "mu", "ada") is None


L2, L3 = ["mu", "s1", "s2", "tacc"], ["mu", "s1", "r1", "s2", "tacc"]


def test_a_path_is_told_by_what_was_measured_of_it_and_not_by_its_layer() -> None:
    archive = archive_of(
        ("path_throughput", "mu>tacc/s1-s2", 1e6, 10.0),
        ("rtt", "mu>tacc via s1-s2", 3.0, 20.0),
        ("loss", "mu>tacc via s1-s2", 0.5, 20.0),
        ("jitter", "mu>tacc via s1-s2", 0.2, 20.0),
    )
    metrics = knowledge.path_metrics(archive, L2, False, NOW)
    assert {name: metric.value for name, metric in metrics.items()} == {
        "throughput": 1e6, "delay": 3.0, "loss": 0.5, "jitter": 0.2,
    }  # fmt: skip
    assert metrics["delay"].age_s(NOW) == 20.0
    other = ["mu", "s1", "s3", "s2", "tacc"]  # of the same layer
    assert knowledge.path_metrics(archive, other, False, NOW) == {}
    back = knowledge.path_metrics(archive, L2[::-1], False, NOW)
    assert {name: metric.value for name, metric in back.items()} == {"delay": 3.0}
    # What two sites have with each other says nothing of one of their paths, and back.
    assert knowledge.path_state(archive, "rtt", "mu", "tacc", NOW) is None


@pytest.mark.parametrize(("there_s", "back_s", "rtt_s"), [(20.0, 200.0, 3.0), (200.0, 20.0, 2.0)])
def test_of_what_was_measured_of_a_path_the_newest_counts(
    there_s: float, back_s: float, rtt_s: float
) -> None:
    archive = archive_of(
        ("rtt", "mu>tacc via s1-s2", 3.0, there_s), ("rtt", "tacc>mu via s2-s1", 2.0, back_s)
    )
    assert knowledge.path_metrics(archive, L2, False, NOW)["delay"].value == rtt_s


def test_probes_between_two_sites_are_of_the_way_that_best_effort_takes() -> None:
    archive = archive_of(
        *(("rtt", "mu/a>tacc/b", 0.05, 1e5 + n) for n in range(20)),
        ("rtt", "mu/a>tacc/b", 3.0, 20.0),
        ("rtt", "mu>tacc", 2.0, 5000.0),
        ("tcp_throughput", "mu/a>tacc/b", 5e6, 30.0),
    )
    assert knowledge.path_metrics(archive, L2, False, NOW) == {}
    metrics = knowledge.path_metrics(archive, L3, True, NOW)
    assert {name: metric.value for name, metric in metrics.items()} == {
        "throughput": 5e6,
        "delay": 3.0,
    }


def test_no_transfer_is_believed_to_be_faster_than_the_disks_at_its_ends() -> None:
    archive = archive_of(
        ("disk_rate", "tacc/write", 30e6, 9.0),
        ("disk_rate", "tacc/write/montage", 20e6, 9.0),
        ("disk_rate", "mu/read", 50e6, 9.0),
        ("disk_rate", "elsewhere/read", 1e6, 9.0),
    )
    known = knowledge.known_estimates(archive, ["mu", "tacc"], [], NOW)
    assert {subject for _, subject in known} == {"tacc/write", "tacc/write/montage", "mu/read"}
    source, names = Measurements(known), ["mu", "tacc"]
    estimates = path_estimates({}, names, source, Network(), NOW, "montage")
    there, back = estimates["mu", "tacc"], estimates["tacc", "mu"]
    assert (there.rate_bps, there.bound) == (20e6, "Γ_t")
    assert there.gamma_t.note == "all that its disk writes" and there.gamma_t.source == "archive"
    assert back.rate_bps > 50e6  # tacc has never read too slowly, nor mu written
    other = path_estimates({}, names, source, Network(), NOW, "soykb")["mu", "tacc"]
    assert other.rate_bps == 30e6
    assert knowledge.disk_rate(archive.estimate, "tacc", "read", "montage", NOW) is None


def test_free_space_is_the_least_of_late_at_any_host_of_a_site() -> None:
    archive = archive_of(
        ("free_space", "mu/a", 9e9, 30.0),
        ("free_space", "mu/a", 7e9, 20.0),  # it jumps: the lesser of the last few counts
        ("free_space", "mu/b", 8e9, 10.0),
        ("free_space", "mu/b", 1e9, 2 * FRESH_S),
        ("free_space", "museum", 1.0, 1.0),
        ("free_space", "tacc", 1.0, 2 * FRESH_S),
    )
    known = knowledge.known_estimates(archive, ["mu", "tacc"], [], NOW)
    spaces = {site: e.value for (metric, site), e in known.items() if metric == "free_space"}
    assert spaces == {"mu": 7e9}
