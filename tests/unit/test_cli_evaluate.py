"""``adon site evaluate`` as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_world import refusal
from test_traces import GOOD, old

from adon.cli.main import main
from site_selector.evaluation import adversary
from site_selector.evaluation.cases import POLICIES
from site_selector.evaluation.worlds import REGIMES


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "small-1.json").write_text(json.dumps(GOOD))
    (folder / "older-1.json").write_text(json.dumps(old("1.4")))
    (folder / "schema.json").write_text('{"$schema": "x"}')
    return folder


def evaluate(*words: object) -> int:
    return main(["site", "evaluate", *map(str, words)])


@pytest.mark.parametrize("staging", ["per-site", pytest.param("per-job", marks=pytest.mark.long)])
def test_the_same_seed_gives_the_same_file_whatever_jobs_is(
    traces: Path, tmp_path: Path, staging: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, other = (tmp_path / name for name in ("a.json", "b.json", "c.json"))
    options = ("--instances", traces, "--platforms", 1, "--staging", staging)
    assert evaluate(*options, "--jobs", 2, "--save", first) == 0
    out = capsys.readouterr()
    assert f"{traces}/schema.json: not a trace, left out" in out.err
    assert "2 of 2 cases" in out.err
    assert evaluate(*options, "--jobs", 1, "--save", second) == 0
    assert capsys.readouterr().out == out.out
    assert first.read_bytes() == second.read_bytes()
    assert evaluate(*options, "--seed", 1, "--jobs", 1, "--save", other) == 0
    assert first.read_bytes() != other.read_bytes()
    result = json.loads(first.read_text())
    assert len(result["cases"]) == 2
    assert result["left_out"] == ["schema.json: not a trace, left out"]
    for regime in REGIMES:
        assert regime in out.out
        summary = result["summary"][regime]
        assert set(summary["best_known"]) == {"all", "small", "older"}
        assert set(summary["best_known"]["all"]) == set(POLICIES)
    for case in result["cases"]:
        for regime in case["regimes"].values():
            assert regime["lower_bound_s"] <= regime["best_known_s"] * (1 + 1e-9)
            assert regime["best_known_s"] <= min(regime["makespan_s"].values())
    assert str(tmp_path) not in first.read_text()


def test_without_errors_the_first_three_regimes_are_one(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    options = ("--platforms", 1, "--errors", 0, "--jobs", 1, "--save", out)
    assert evaluate("--instances", traces, *options) == 0
    for case in json.loads(out.read_text())["cases"]:
        exact, errors, waits, _ = (case["regimes"][name]["makespan_s"] for name in REGIMES)
        assert exact == errors == waits


def test_the_adversary_writes_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adversary, "_DRAWS", 2)
    out = tmp_path / "a.json"
    assert evaluate("--adversary", 1, "--platforms", 1, "--jobs", 1, "--save", out) == 0
    assert "adon ÷ best built-in" in capsys.readouterr().out
    cases = json.loads(out.read_text())["found"]
    assert len(cases) == 1
    assert set(cases[0]["makespan_s"]) == set(POLICIES)


def test_a_bad_trace_stops_it_before_anything_is_written(traces: Path, tmp_path: Path) -> None:
    bad = traces / "bad-1.json"
    bad.write_text("{")
    out = tmp_path / "a.json"
    said = refusal("site", "evaluate", "--instances", traces, "--save", out)
    assert said.startswith(f"{bad}: found Expecting property name")
    assert not out.exists()


def test_where_it_cannot_write_is_said_at_once(traces: Path, tmp_path: Path) -> None:
    def said(path: Path) -> str:
        return refusal("site", "evaluate", "--instances", traces, "--save", path)

    gone = tmp_path / "gone"
    assert said(gone / "a.json").endswith(f"found no folder {gone}, expected it to be there")
    assert said(tmp_path).endswith("found no regular file, expected a file or a free name")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--errors", "1"), "argument --errors: found '1', expected a number from 0 to 0.99"),
        (("--errors", "nan"), "argument --errors: found 'nan', expected a number from 0 to 0.99"),
        (
            ("--platforms", "0"),
            "argument --platforms: found '0', expected a whole number from 1 to 10000",
        ),
        (("--jobs", "x"), "argument --jobs: found 'x', expected a whole number from 1 to 1024"),
        (("--staging", "x"), "argument --staging: found 'x', expected one of"),
    ],
)
def test_arguments(words: tuple[str, ...], said: str) -> None:
    line = refusal("site", "evaluate", "--instances", "x", *words)
    assert line.startswith(said) and line.endswith(" (see 'adon site evaluate --help')")


def test_there_must_be_something_to_evaluate() -> None:
    said = refusal("site", "evaluate")
    assert said.startswith("one of the arguments --instances --adversary is required")
