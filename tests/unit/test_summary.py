"""The lines that a demo ends with: what happened, and where it went wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_world import facts, taught, transit

from adon.report.messages import failure_text
from adon.report.run_facts import NO_MAPPING
from examples.demo.facts import DemoFacts, MakespanWithoutAdon, as_json
from examples.demo.sections import demo_page as render
from examples.demo.summary import COLUMNS, changed, summary_text
from examples.scenario import CheckedResult
from monitors.workflows.report import Failure

REPORTS = (Path("/r/report.html"), Path("/r/report.json"))
RUN = Path("/s/testbed/submit/u/pegasus/soykb/run0001")
BROKEN = Failure(
    job="sort_sam_ID0000005",
    site="mu",
    exit_code=7,
    attempts=3,
    reason="Job proc (5.0.0) failed with status 7 (after 2 node retries)",
    tail=[f"line {n}" for n in range(9)] + ["cannot <sort> " + "x" * 300],
    files=[RUN / "00/00/sort_sam_ID0000005.err"],
)


def failed_run(**changes: object) -> DemoFacts:
    more = {"state": "failed", "science": CheckedResult(), "failures": [BROKEN], "submit_dir": RUN}
    return facts(**(more | changes))


def early_end() -> DemoFacts:
    """A run that was interrupted before sites were chosen."""
    return facts(
        planner="none", state="interrupted", jobs=0, dag_jobs=0, mapping=NO_MAPPING, edges=[],
        transits=[], bars=[], links=[], samples=[], science=CheckedResult(), status_records=0,
        taught={},
        stopped="interrupted by SIGINT, while the broker started",
    )  # fmt: skip


@pytest.mark.parametrize("earlier", [0, 7])
def test_the_summary_is_readable(earlier: int) -> None:
    run = facts(taught=taught(9, 9), earlier_measurements=earlier, warnings=["w" * 60 + " x"] * 99)
    text = summary_text(run, REPORTS)
    lines = text.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert lines[-3].endswith("/r/report.html") and lines[-2].endswith("/r/report.json")
    assert lines[-1].startswith("dashboard ")
    assert "success: 3 jobs in 20.0 s (2 at mu, 1 at tacc)" in text
    assert "and 91 more warnings" in text and text.count("report ") < 20


def test_one_line_says_what_adon_gains() -> None:
    run = facts(without=MakespanWithoutAdon(208.4, 93.9))
    words = "20 s; without ADON about 208 s by the model (94 s with Pegasus's Heft)"
    assert f"gain       {words}" in summary_text(run, REPORTS)
    assert "without ADON" not in summary_text(facts(), REPORTS)


@given(st.integers(0, 60), st.integers(0, 60))
def test_what_changed_takes_at_most_eight_lines(moved: int, beliefs: int) -> None:
    lines = changed(facts(taught=taught(moved, beliefs), earlier_measurements=5))
    assert 1 < len(lines) <= 8 and max(map(len, lines)) <= COLUMNS
    assert f"moved {moved} of 3 jobs" in lines[0]
    assert "65.9 s by the catalogs, 5.91 s with measurements; it took 20.0 s" in lines[-1]


def test_the_beliefs_told_are_of_different_kinds() -> None:
    text = "\n".join(changed(facts(taught=taught(2, 8), earlier_measurements=5)))
    assert "bandwidth iplant → mu: 200 Mb/s (catalog), now 3 b/s (archive, 22 s old)" in text
    assert "queue wait at mu" in text and "workers at mu" in text and "5 more estimates" in text


def test_transfers_over_one_path_are_told_together() -> None:
    two = [transit(), transit(id="b", goodput_bps=50e6)]
    text = summary_text(facts(transits=two), REPORTS)
    assert "24 MB in 2 transfers at ≤ 96 Mb/s, 25 Mb/s reserved" in text


def test_a_failed_run_has_no_science_in_its_summary() -> None:
    text = summary_text(facts(state="failed", science=CheckedResult()), REPORTS)
    assert "failed: 1 of 3 jobs done in 20.0 s" in text and "recall" not in text
    assert "changed" not in text and "next time" not in text


def test_a_failed_job_is_named_with_its_site_its_code_its_last_words_and_its_files() -> None:
    lines = summary_text(failed_run(), REPORTS).splitlines()
    at = lines.index("failed     sort_sam_ID0000005 at mu: exit code 7, the last of 3 attempts")
    details = lines[at + 1 : at + 9]
    assert details[:5] == [f"           | line {n}" for n in range(4, 9)]
    assert details[5].startswith("           | cannot <sort> xxx") and len(details[5]) == COLUMNS
    assert details[6:] == [f"           {BROKEN.files[0]}", f"files      {RUN}"]


def test_many_failed_jobs_take_few_lines() -> None:
    text = summary_text(failed_run(failures=[BROKEN] * 40), REPORTS)
    assert text.count("exit code 7") == 3 and "and 37 more failed jobs, see the report" in text


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (3, "x", "a at mu: exit code 3"),
        (-9, "x", "a at mu: ended by signal 9"),
        (0, "POST Script failed", "a at mu: exit code 0, but POST Script failed"),
        (None, "Job submit failed", "a at mu: Job submit failed"),
        (None, "", "a at mu: failed"),
    ],
)
def test_how_a_job_failed_is_told(code: int | None, reason: str, words: str) -> None:
    assert failure_text(Failure("a", "mu", code, 1, reason, [], [])) == words


def test_who_waited_in_vain_is_told() -> None:
    why = 'job x matches no slot: none of 8 slots has PegasusSite == "mars"'
    run = failed_run(state="interrupted", failures=[], waiting=[why], stopped="interrupted by X")
    text = summary_text(run, REPORTS)
    assert f"waiting    {why}" in text and "stopped    interrupted by X" in text
    assert as_json(run)["waiting"] == [why]


def test_a_run_that_was_cut_short_early_has_a_report_too() -> None:
    text = summary_text(early_end(), REPORTS)
    assert "workflow   interrupted, nothing was submitted" in text
    assert "stopped    interrupted by SIGINT, while the broker started" in text
    assert "planner" not in text and "recorded" not in text
    out = json.loads(json.dumps(as_json(early_end()), allow_nan=False))
    assert (out["planner"], out["workflow"]["state"]) == ("none", "interrupted")
    assert (out["placements"], out["failures"]) == ([], [])
    page = render(early_end())
    assert "It was not planned." in page and "interrupted by SIGINT" in page
    assert 'href="#why"' not in page and 'id="left"' in page


def test_the_page_shows_what_went_wrong_first() -> None:
    page = render(failed_run())
    assert page.index('id="failed"') < page.index('id="workflow"')
    assert "cannot &lt;sort&gt;" in page and str(BROKEN.files[0]) in page
    assert 'id="failed"' not in render(facts())


def test_json_tells_failures() -> None:
    (failure,) = as_json(failed_run())["failures"]
    assert (failure["job"], failure["site"], failure["exit_code"]) == (
        "sort_sam_ID0000005",
        "mu",
        7,
    )
    assert failure["stderr"][0] == "line 0" and failure["files"] == [str(BROKEN.files[0])]
