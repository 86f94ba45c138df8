"""The drawing of a mapping: a valid document in which bars of one row never overlap."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_world import inputs_from, resequencing

from site_selector.estimates.believe import believe
from site_selector.explain.gantt import Bar, Chart, chart_of, job_bar, move_bar, rows, svg
from site_selector.mapping.mapper import map_workflow
from site_selector.problem import build_problem

SVG = "{http://www.w3.org/2000/svg}"
bars = st.builds(
    lambda start, long, label: Bar("mu", label, "t", start, start + long),
    st.floats(0, 1e5),
    st.floats(0.01, 1e4),
    st.text(max_size=8),
)


def drawn(chart: Chart) -> ET.Element:
    return ET.fromstring(svg(chart))


def texts(root: ET.Element) -> list[str]:
    return [str(e.text) for e in root.iter(f"{SVG}text")]


@given(st.lists(bars, max_size=40))
def test_bars_of_a_row_do_not_overlap_and_there_are_no_more_rows_than_needed(
    some: list[Bar],
) -> None:
    placed = rows(some)
    assert sorted(id(bar) for _, bar in placed) == sorted(id(bar) for bar in some)
    for row in {row for row, _ in placed}:
        mine = sorted((b.start_s, b.end_s) for r, b in placed if r == row)
        assert all(a[1] <= b[0] * (1 + 1e-8) + 1e-8 for a, b in pairwise(mine))
    at_once = max(
        (sum(b.start_s <= bar.start_s < b.end_s for b in some) for bar in some), default=0
    )
    assert len({row for row, _ in placed}) <= max(at_once, 1 if some else 0)


@given(
    st.lists(st.text(max_size=30).filter(lambda t: t.isprintable()), min_size=1, max_size=12),
    st.floats(1e-3, 1e7),
)
def test_any_names_and_any_span_make_a_valid_document(names: list[str], span: float) -> None:
    jobs = tuple(
        job_bar(name, f"{name}&<", f"site {name}", i * span, (i + 1) * span)
        for i, name in enumerate(names)
    )
    moves = tuple(move_bar(name, "a>b", 1e9, 0.0, span) for name in names)
    root = drawn(Chart('<&"title">', jobs, moves))
    height = float(root.attrib["height"])
    wide = float(root.attrib["width"])
    for rect in root.iter(f"{SVG}rect"):
        right = float(rect.attrib.get("x", 0)) + float(rect.attrib["width"])
        low = float(rect.attrib.get("y", 0)) + float(rect.attrib["height"])
        assert 0 <= right <= wide + 1 and 0 <= low <= height + 1


def test_it_needs_nothing_beside_itself() -> None:
    text = svg(Chart("t", (job_bar("x", "a", "mu", 0, 1),), ()))
    assert "href" not in text and "<script" not in text and "@import" not in text


@pytest.mark.parametrize(
    ("span", "unit", "last"),
    [(50, "time (seconds)", "50"), (1800, "time (minutes)", "30"), (90_000, "time (hours)", "25"),
     (2e6, "time (days)", "20")],
)  # fmt: skip
def test_the_time_axis_has_units(span: float, unit: str, last: str) -> None:
    shown = texts(drawn(Chart("t", (job_bar("x", "a", "mu", 0, span),), ())))
    assert unit in shown
    assert last in shown


def test_a_mapped_workflow() -> None:
    sites: dict[str, dict[str, object]] = {
        name: {"adon.workers": 2, "adon.queue_wait": "1 s"} for name in ("mu", "tacc")
    }
    inputs = inputs_from(*resequencing(2, 2, sites, "mu"))
    world = believe(inputs, now=0.0, output_site="tacc")
    mapping = map_workflow(inputs, world, "tacc")
    problem = build_problem(inputs, world, "tacc")
    names = [inputs.workflow.jobs[job].transformation for job in problem.jobs]
    chart = chart_of(problem, names, mapping)
    assert len(chart.jobs) == len(mapping.placements)
    assert {bar.label: bar.band for bar in chart.jobs} == mapping.sites
    assert chart.end_s == pytest.approx(mapping.makespan_s)
    for site in sites:
        placed = rows([bar for bar in chart.jobs if bar.band == site])
        assert len({row for row, _ in placed}) <= 2
    shown = texts(drawn(chart))
    assert set(mapping.sites.values()) <= set(shown)
    assert {"t::align:1.0", "transfer"} <= set(shown)


def test_a_thousand_workers_still_make_a_picture() -> None:
    chart = Chart("t", tuple(job_bar(f"x{i}", "a", "mu", 0, 1) for i in range(3000)), ())
    assert float(drawn(chart).attrib["height"]) < 6300
