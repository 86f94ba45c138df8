"""Sizes of a transfer's files, and pegasus-transfer's records of what it moved."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hooks_world import move
from hypothesis import given, settings
from hypothesis import strategies as st
from planned_world import NAME, PARENT, WORKFLOW, Planned

from monitors.workflows.logs import transferlog
from monitors.workflows.logs.transferlog import TransferAttempt
from monitors.workflows.planned import job_files, transferlist
from monitors.workflows.planned.job_files import PlannedFiles
from monitors.workflows.planned.transferlist import SitePair, SiteUrl, Transfer, site_pairs
from pegasus_hooks.prepost import sizes
from pegasus_hooks.prepost.postjob import pair_result

JOB = "count_ID2"


def pair_of(*lfns: str) -> SitePair:
    (site_pair,) = site_pairs([move(lfn, "a", "mu") for lfn in lfns])
    return site_pair


def files_of(plan: Planned) -> PlannedFiles:
    with (plan.where / f"{NAME}-0.dag").open("a") as dag:
        dag.write(f"JOB {JOB} 00/00/{JOB}.sub\n")
    return PlannedFiles(plan.where, JOB)


def sizes_of(plan: Planned, *lfns: str, site: str = "mu") -> dict[str, int]:
    known, _ = sizes.sizes_for([pair_of(*lfns)], files_of(plan), site)
    return {lfn: known[lfn] for lfn in lfns if lfn in known}


def test_nothing_is_read_where_all_is_declared(tmp_path: Path) -> None:
    (declared,) = site_pairs([move("f", "a", "mu", 5)])
    assert sizes.sizes_for([declared], PlannedFiles(tmp_path / "missing", JOB), "mu") == (
        {},
        frozenset(),
    )
    assert sizes.source_of(declared, {}, frozenset()) == sizes.DECLARED


def test_later_sources_know_better(plan: Planned) -> None:
    (plan.where / "mini-0.metadata").write_text(
        json.dumps(
            {"graph": {"jobs": {"x": {"p@size": "1", "q.size": "1", "r@size": "1"}}}}, indent=1
        )
    )
    assert sizes_of(plan, "p", "q", "r", "s") == {"p": 1, "q": 1, "r": 1}
    plan.wrote("q", 2)
    plan.wrote("q", 3)  # a job that ran again
    assert sizes_of(plan, "p", "q", "r") == {"p": 1, "q": 3, "r": 1}
    job_files.append_lines(plan.where / job_files.SIZE_JOURNAL, [{"lfn": "q", "bytes": 4}])
    plan.input_sizes(JOB, {"r": 5})
    assert sizes_of(plan, "p", "q", "r") == {"p": 1, "q": 4, "r": 5}


def test_a_file_of_this_machine_is_looked_at(plan: Planned, tmp_path: Path) -> None:
    (tmp_path / "reads").write_bytes(b"x" * 17)
    entry = move("reads", "local", "mu", None, str(tmp_path))
    (here,) = site_pairs([entry])
    assert sizes.sizes_for([here], files_of(plan), "local")[0] == {"reads": 17}
    assert sizes.sizes_for([here], files_of(plan), "mu")[0] == {}  # not where it would run
    (tmp_path / "reads").unlink()
    assert sizes.sizes_for([here], files_of(plan), "local")[0] == {}
    (tmp_path / "reads").mkdir()
    assert sizes.sizes_for([here], files_of(plan), "local")[0] == {}


def test_a_remote_file_is_not_looked_for_here(plan: Planned) -> None:
    remote = Transfer("f", (SiteUrl("a", "gsiftp://h/etc/passwd"),), (SiteUrl("mu", "file:///x"),))
    known, _ = sizes.sizes_for(site_pairs([remote]), files_of(plan), "local")
    assert known == {}


def test_a_sub_workflow_knows_what_its_parents_jobs_wrote(tmp_path: Path) -> None:
    outer = Planned(tmp_path / "run", PARENT)
    inner = Planned(outer.folder / "sub", WORKFLOW, root=PARENT)
    outer.wrote("top", 31)
    outer.wrote("both", 31)
    inner.wrote("both", 32)
    assert sizes_of(inner, "top", "both") == {"top": 31, "both": 32}
    assert sizes_of(outer, "top") == {"top": 31}
    # A workflow that is nobody's part looks nowhere else, wherever it lies.
    alone = Planned(outer.folder / "alone", "another")
    assert sizes_of(alone, "top") == {}


def test_a_file_like_others_is_estimated_by_them(plan: Planned) -> None:
    for number, size in ((1, 10), (2, 20), (3, 90)):
        plan.wrote(f"chr{number}.vcf", size)
    known, estimates = sizes.sizes_for(
        [pair_of("chr17.vcf", "chr1.vcf", "x")], files_of(plan), "mu"
    )
    assert (known["chr17.vcf"], estimates) == (20, {"chr17.vcf"})
    assert "x" not in known
    assert sizes.source_of(pair_of("chr17.vcf", "chr1.vcf"), known, estimates) == sizes.ESTIMATED
    assert sizes.source_of(pair_of("chr1.vcf"), known, estimates) == sizes.KNOWN
    assert sizes.source_of(pair_of("chr17.vcf", "x"), known, estimates) == sizes.UNKNOWN


@settings(max_examples=25)
@given(
    st.dictionaries(st.from_regex(r"[ab][0-9]{1,2}", fullmatch=True), st.integers(0, 10**15)),
    st.sets(st.from_regex(r"[abc][0-9]{1,2}", fullmatch=True)),
)
def test_an_estimate_is_a_size_that_was_seen(known: dict[str, int], wanted: set[str]) -> None:
    estimates = sizes.estimated_sizes(wanted, known)
    assert estimates.keys() == {w for w in wanted if any(k[0] == w[0] for k in known)}
    for lfn, size in estimates.items():
        alike = [v for k, v in known.items() if k[0] == lfn[0]]
        assert size in alike and min(alike) <= size <= max(alike)


@settings(max_examples=25)
@given(st.binary(max_size=300))
def test_whatever_stands_in_the_logs_does_no_harm(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes
) -> None:
    plan = Planned(tmp_path_factory.mktemp("run") / "r")
    for name in ("mini-0.cache.meta", "mini-0.metadata", f"00/00/{JOB}.in.meta"):
        (plan.where / name).write_bytes(junk)
    known, _ = sizes.sizes_for([pair_of("f")], files_of(plan), "mu")
    assert all(size >= 0 for size in known.values())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '[{"_id": "f"}]',
        '[{"_id": "f", "_attributes": {"size": "-3"}}]',
        f'[{{"_id": "f", "_attributes": {{"size": {10**30}}}}}]',
    ],
)
def test_a_metadata_file_without_sizes(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.meta").write_text(text)
    assert job_files.input_sizes(tmp_path / "x.meta") == {}


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
