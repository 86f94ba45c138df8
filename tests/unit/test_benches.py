"""Benches are run seldom; that they can be is known at once, and what becomes of a result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench import BENCHES, Bench, Figure, Input, Tell, paper_runs
from tests.bench.__main__ import load, run
from tests.bench.papers import PAPERS, Plot, drawn
from tests.bench.results import FOLDER, ROOT, save
from tests.bench.results import load as saved
from tests.bench.tables import rendered


def test_every_bench_can_be_loaded() -> None:
    assert load() == []


def test_a_bench_writes_each_result_anew() -> None:
    assert load() == []
    names = {(bench.id, bench.run.__name__) for bench in BENCHES}
    results = {(file.stem, name) for file in FOLDER.glob("*.json") for name in saved(file.stem)}
    assert results - names == set()


def test_a_run_becomes_a_table(tmp_path: Path) -> None:
    def lag(tell: Tell) -> Iterable[Figure | Input]:
        yield Input("logs", "sha256:12")
        yield Figure("lag, median", 0.0214, "s", "lower", 0.02, {"polling": 1234.5})
        yield Figure("lag, worst", 0.3, "s", "lower", None, {"polling": 5.0})
        yield Figure("cable pulled: gap", 1.0, "s", "lower")
        yield Figure("cable pulled: lost", 3.0, "packets", "lower", 0.0)

    result, whole = run(Bench("P77", lag))
    assert result is not None
    assert whole
    save("P77", "lag", {**result, "machine": "2 cores", "load": [0.5, 0.2], "date": "2026-11-29",
                        "commit": "4d941962"}, tmp_path)  # fmt: skip
    page = "Text.\n\n<!-- P77 -->\n<!-- end -->\n"
    assert rendered(page, tmp_path) == (
        "Text.\n\n<!-- P77 -->\n"
        "| | ADON | polling | goal |\n|---|---|---|---|\n"
        "| lag, median | 0.0214 s | 1,230 s | ≤ 0.02 s, **missed** |\n"
        "| lag, worst | 0.3 s | 5 s |  |\n\n"
        "| | gap, s | lost (≤ 0 packets) |\n|---|---|---|\n"
        "| cable pulled | 1 | 3, **missed** |\n\n"
        "*2026-11-29, `4d941962`, 2 cores, load 0.2 to 0.5, logs `sha256:12`.*\n\n<!-- end -->\n"
    )


def test_plots_of_the_papers_have_a_value_for_each_label() -> None:
    for plot in (plot for paper in PAPERS.values() for plot in paper.plots):
        series = plot.read() or {}
        lengths = {len(values) for values in series.values()}
        assert len(lengths) <= 1 and (plot.lines or lengths <= {len(plot.labels)}), plot.name
        assert not series or drawn(plot, series).startswith("<svg")


def test_plots_are_bars_or_lines() -> None:
    bars = drawn(
        Plot("a", "t", ("1", "2"), "%", dict), {"paper": [(10.0, 1.0), -1], "ADON": [5, 7]}
    )
    assert bars.count("■") == 2 and bars.count("<rect x=") == 3
    lines = drawn(
        Plot("b", "t", (), "", dict, True), {"t1": [0.0, 1.0, 2.0], "t3": [3.0, 1.0, 0.0]}
    )
    assert lines.count("<polyline") == 2


def test_what_is_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    left = 3

    @contextmanager
    def box() -> Iterator[Callable[[Mapping[str, str]], float]]:
        def measure(point: Mapping[str, str]) -> float:
            if len(measured) == left:
                raise KeyboardInterrupt
            measured.append(point["of"])
            return 1.0

        yield measure

    monkeypatch.setattr(paper_runs, "FOLDER", tmp_path)
    points = {"a": {"of": "a"}, "b": {"of": "b"}}
    monkeypatch.setattr(paper_runs, "KINDS", {"sos": (lambda: points, box)})
    monkeypatch.setattr(paper_runs, "TURNS", {"sos": 2})
    with pytest.raises(KeyboardInterrupt):
        paper_runs.measure_missing("sos", 60.0)
    assert not paper_runs.whole("sos")
    left = 9
    paper_runs.measure_missing("sos", 60.0)
    assert measured == ["a", "b", "a", "b"] and paper_runs.whole("sos")


def test_bounds_of_95_percent() -> None:
    mean, half = paper_runs.bounds([1.0, 2.0, 3.0])
    assert (mean, half) == (2.0, pytest.approx(4.303 / 3**0.5))
    assert paper_runs.bounds([5.0]) == (5.0, 0.0)


def test_files_that_the_page_of_the_papers_names_are_there() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    names = re.findall(r"`([a-z_]+/[^`]*)`|\]\((papers/[^)]*)\)", page)
    missing = [f for f, plot in names if f and not (ROOT / f).exists()]
    missing += [plot for _, plot in names if plot and not (ROOT / "docs" / plot).exists()]
    assert missing == []


def test_a_bench_that_fails_or_cannot_measure_has_no_result() -> None:
    def nothing(tell: Tell) -> Iterable[Figure]:
        tell("needs root")
        return ()

    def breaks(tell: Tell) -> Iterable[Figure]:
        yield Figure("half", 1.0, "s", "lower")
        raise OSError("no such file")

    assert run(Bench("P77", nothing)) == (None, True)
    assert run(Bench("P77", breaks)) == (None, False)
