"""Records of pegasus-transfer: bytes and seconds of a site pair."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hooks_world import move
from hypothesis import given
from hypothesis import strategies as st

from monitors.workflows.logs import transferlog
from monitors.workflows.logs.transferlog import TransferAttempt
from monitors.workflows.planned import transferlist
from pegasus_hooks.prepost.postjob import pair_result

THIRD_PARTY = """- transfer_attempts:
  - src_url: "gsiftp://mu.example:2811/run/a"
    src_label: "mu_east"
    dst_url: "gsiftp://tacc.example:2811/run/a"
    dst_label: "tacc"
    success: False
    start: 1700000000
    duration: 3.0
    lfn: "a"
  - src_url: "gsiftp://mu.example:2811/run/a"
    src_label: "mu_east"
    dst_url: "gsiftp://tacc.example:2811/run/a"
    dst_label: "tacc"
    success: True
    start: 1700000003
    duration: 2.0
    lfn: "a"
  - src_url: "file:///b"
    src_label: "local"
    dst_url: "gsiftp://tacc.example:2811/run/b"
    dst_label: "tacc"
    success: True
    start: 1700000005
    duration: 4.5
    lfn: "b"
    bytes: 42
"""


def attempt(lfn: str, start: float, duration: float, success: bool = True) -> TransferAttempt:
    return TransferAttempt("x", "y", lfn, success, start, duration)


def pair(
    *lfns: str, src: str = "x", dst: str = "y", size: int | None = 10
) -> transferlist.SitePair:
    (site_pair,) = transferlist.site_pairs([move(lfn, src, dst, size) for lfn in lfns])
    return site_pair


def test_records_as_the_tool_writes_them() -> None:
    failed, again, upload = transferlog.parse(THIRD_PARTY)
    assert (failed.success, again.success, again.n_bytes) == (False, True, None)
    assert upload == TransferAttempt("local", "tacc", "b", True, 1700000005.0, 4.5, 42)


def test_records_inside_a_kickstart_document() -> None:
    output = (
        "- invocation: True\n  version: 3.0\n  start: 2026-11-20\n" + THIRD_PARTY + "- other:\n"
    )
    assert transferlog.parse(output) == transferlog.parse(THIRD_PARTY)


def test_a_site_label_with_a_dash_is_found_again() -> None:
    result = pair_result(pair("a", src="mu-east", dst="tacc"), transferlog.parse(THIRD_PARTY), {})
    assert (result.n_bytes, result.seconds) == (10, 2.0)
    assert (result.files, result.failed_attempts) == (1, 1)


def test_a_record_cut_short_is_passed_over() -> None:
    cut = THIRD_PARTY[: THIRD_PARTY.index("duration: 4.5")]
    assert len(transferlog.parse(cut)) == 2


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    transferlog.parse(text)


def test_files_of_one_call_share_its_time() -> None:
    together = [attempt("a", 100, 6.0), attempt("b", 100, 6.0), attempt("c", 106, 1.5)]
    result = pair_result(pair("a", "b", "c"), together, {})
    assert (result.n_bytes, result.seconds, result.files) == (30, 7.5, 3)


def test_calls_side_by_side_count_the_span_only() -> None:
    both = [attempt("a", 100, 6.0), attempt("b", 100, 5.5)]
    assert pair_result(pair("a", "b"), both, {}).seconds == 7.0


@pytest.mark.parametrize(("known", "wanted"), [({}, None), ({"a": 3}, None), ({"a": 3, "b": 4}, 7)])
def test_bytes_of_undeclared_files(known: dict[str, int], wanted: int | None) -> None:
    done = [attempt("a", 1, 1.0), attempt("b", 2, 1.0)]
    assert pair_result(pair("a", "b", size=None), done, known).n_bytes == wanted


def test_nothing_moved() -> None:
    result = pair_result(pair("a"), [attempt("a", 1, 1.0, success=False)], {})
    assert (result.n_bytes, result.seconds, result.files, result.failed_attempts) == (
        None, 0.0, 0, 1,
    )  # fmt: skip


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.floats(0, 20), st.booleans()),
        max_size=8,
    )
)
def test_seconds_never_exceed_span_nor_busy_time(
    rows: list[tuple[str, int, float, bool]],
) -> None:
    attempts = [attempt(lfn, start, duration, ok) for lfn, start, duration, ok in rows]
    result = pair_result(pair("a", "b", "c"), attempts, {})
    done = [a for a in attempts if a.success]
    busy = sum(a.duration_s for a in done)
    assert 0 <= result.seconds <= busy + 1e-9
    assert result.n_bytes == (10 * len({a.lfn for a in done}) if done else None)


def test_only_records_of_this_run_are_read(tmp_path: Path) -> None:
    for name, at in (("100-transfer", 100), ("200-transfer", 200)):
        (tmp_path / name).write_text(THIRD_PARTY)
        os.utime(tmp_path / name, (at, at))
    (tmp_path / "other").write_text(THIRD_PARTY)
    assert len(transferlog.read_dir(tmp_path)) == 6
    assert len(transferlog.read_dir(tmp_path, since=150)) == 3
    assert transferlog.read_dir(tmp_path / "missing") == []
