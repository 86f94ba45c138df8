"""Sizes of what a list declares none for: from any source that knows, else estimated, else
unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hooks_world import move
from hypothesis import given, settings
from hypothesis import strategies as st
from planned_world import NAME, PARENT, WORKFLOW, Planned

from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from monitors.workflows.planned.transferlist import SitePair, SiteUrl, Transfer, site_pairs
from pegasus_hooks.prepost import sizes

JOB = "count_ID2"


def pair(*lfns: str) -> SitePair:
    (site_pair,) = site_pairs([move(lfn, "a", "mu") for lfn in lfns])
    return site_pair


def files_of(plan: Planned) -> PlannedFiles:
    with (plan.where / f"{NAME}-0.dag").open("a") as dag:
        dag.write(f"JOB {JOB} 00/00/{JOB}.sub\n")
    return PlannedFiles(plan.where, JOB)


def sizes_of(plan: Planned, *lfns: str, site: str = "mu") -> dict[str, int]:
    known, _ = sizes.sizes_for([pair(*lfns)], files_of(plan), site)
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
    known, estimates = sizes.sizes_for([pair("chr17.vcf", "chr1.vcf", "x")], files_of(plan), "mu")
    assert (known["chr17.vcf"], estimates) == (20, {"chr17.vcf"})
    assert "x" not in known
    assert sizes.source_of(pair("chr17.vcf", "chr1.vcf"), known, estimates) == sizes.ESTIMATED
    assert sizes.source_of(pair("chr1.vcf"), known, estimates) == sizes.KNOWN
    assert sizes.source_of(pair("chr17.vcf", "x"), known, estimates) == sizes.UNKNOWN


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
    known, _ = sizes.sizes_for([pair("f")], files_of(plan), "mu")
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
