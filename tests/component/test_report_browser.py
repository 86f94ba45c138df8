"""The report and the plots in a real browser: Debian's Chromium, headless."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from browser import Page, draw
from report_world import chains, facts, large, taught

from adon.dashboard.layout import layout_of
from adon.dashboard.standalone import Figure
from adon.dashboard.standalone import page as standalone
from adon.report.page import render as report
from examples.demo.facts import DemoFacts
from examples.demo.sections import demo_page as render

pytestmark = pytest.mark.component
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}
DRAWINGS = "document.querySelectorAll('main svg[role=img]').length"
# The vertical places of all jobs, by what they are called.
LEVELS = """Object.fromEntries([...document.querySelectorAll('[data-draw=dag] .job')].map((g) =>
  [g.querySelector('.name').textContent, Number(g.querySelector('rect').getAttribute('y'))]))"""
# What a link leads to and is not there, or is there twice.
LOST = """[...document.querySelectorAll('a')].map((a) => a.getAttribute('href')).filter((to) =>
  to[0] !== '#' || document.querySelectorAll(`[id="${to.slice(1)}"]`).length !== 1)"""
# Pairs of bars that lie over each other.
OVERLAPS = """(() => {
  const bars = [...document.querySelectorAll('[data-draw=gantt] rect:not(.held)')]
    .map((e) => e.getBBox()).sort((a, b) => a.y - b.y || a.x - b.x);
  return bars.slice(1).filter((b, n) => b.y === bars[n].y
    && b.x < bars[n].x + bars[n].width - 2.01).length;
})()"""


def show(page: Page, run: DemoFacts, folder: Path) -> None:
    file = folder / "report.html"
    file.write_text(render(run), encoding="utf-8")
    page.go(file.as_uri())
    page.wait(f"{DRAWINGS} >= {2 + bool(run.samples)}")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_is_drawn(page: Page, tmp_path: Path, width: int, scheme: str) -> None:
    """Wide drawings and tables scroll by themselves, the page does not."""
    page.look(width, 900, scheme)
    show(page, facts(taught=taught(), earlier_measurements=7), tmp_path)
    assert page.run("document.documentElement.scrollWidth") == width
    assert page.run("getComputedStyle(document.body).backgroundColor") == PAPER[scheme]
    assert page.problems == []
    assert page.run(LOST) == []
    levels = page.run(LEVELS)
    assert levels["align<x>"] < levels["sort"] < levels["merge"]
    said = page.text("[data-draw=gantt]")
    assert "align 1" in said and "merge 3 ✗ failed" in said and "iplant → mu, 12 MB" in said
    assert page.run(OVERLAPS) == 0
    assert page.run("document.querySelectorAll('[data-draw=chart] .cut').length") >= 1
    assert page.run("document.querySelectorAll('main script, main img').length") == 0


def test_a_large_one_is_drawn_by_kind_with_its_counts(page: Page, tmp_path: Path) -> None:
    run = large()
    show(page, run, tmp_path)
    assert re.search(r"\w+ × \d{2,}\n\d+ iplant, \d+ mu", page.text("[data-draw=dag]"))
    dots = "svg[aria-label^='All '] rect"
    assert page.run(f'document.querySelectorAll("{dots}").length') == run.jobs
    bars = "document.querySelectorAll('[data-draw=gantt] rect').length"
    assert page.run(bars) == len(run.bars)
    assert re.search(r"up to \d+ waiting", page.text("[data-draw=gantt]"))
    assert page.run(OVERLAPS) == 0 and page.problems == []


def test_ten_thousand_jobs_are_drawn_as_few_shapes(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report(chains(10_000)), encoding="utf-8")
    page.go(file.as_uri())
    page.wait(f"{DRAWINGS} >= 2")
    assert "job1 × 2500" in page.text("[data-draw=dag]")
    levels = page.run(LEVELS)
    assert levels["job0 × 2500"] < levels["job1 × 2500"] < levels["job3 × 2500"]
    assert page.run("document.querySelectorAll('svg rect').length") < 200
    assert page.run(OVERLAPS) == 0 and page.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_network_and_a_chart_on_pages_of_their_own(
    page: Page, tmp_path: Path, scheme: str
) -> None:
    names = ["<b>&\"'", "ü", "s1"]
    holder = {"id": "t<1>", "start": 5.0, "end": 20.0, "reserved_bps": 45e6}
    links = [
        {
            "a": a, "b": b, "layer": "l2", "capacity_bps": 1e8, "delay_s": 0.0265, "vlan": 7,
            "load": [
                {
                    "from": src, "to": dst, "reserved_bps": bps, "reservable_bps": 9e7,
                    "granted_bps": bps, "transits": ["t<1>"], "holders": [holder] if bps else [],
                }
                for src, dst, bps in ((a, b, 45e6), (b, a, 0.0))
            ],
        }
        for a, b in pairwise(names)
    ]  # fmt: skip
    nodes = [
        {"name": n, "kind": k} for n, k in zip(names, ("site", "router", "switch"), strict=True)
    ]
    topology = {"at": 0.0, "until": 30.0, "nodes": nodes, "links": links}
    layout = layout_of(names, list(pairwise(names)))
    bar = {"label": "x1", "cls": "s1", "tip": "x1 </script>", "held": []}
    gantt = {
        "groups": [["mu", [bar | {"submit": 0, "start": 1, "end": 3}]]],
        "end": 4,
        "key": [["s1", "align"]],
    }
    figures = [
        Figure("network", {"topology": topology, "layout": layout}),
        Figure("gantt", gantt, "Jobs <over> time", "A note & more"),
    ]
    file = tmp_path / "plot.html"
    file.write_text(standalone("<A> title", figures), encoding="utf-8")
    page.look(1280, 900, scheme)
    page.go(file.as_uri())
    page.wait(f"{DRAWINGS} >= 4")
    assert page.problems == []
    assert page.run("getComputedStyle(document.body).backgroundColor") == PAPER[scheme]
    said = page.text()
    for words in (
        *names,
        "<A> title",
        "→ 45 %",
        "26.5 ms",
        "l2, VLAN 7",
        "Jobs <over> time",
        "align",
    ):
        assert words in said, words
    assert page.run("document.querySelectorAll('rect.block').length") == 2
    assert page.run("document.querySelectorAll('main script, main b').length") == 0


def printed_pages(page: str, folder: Path) -> int:
    file, paper = folder / "report.html", folder / "report.pdf"
    file.write_text(page, encoding="utf-8")
    draw(folder, file.as_uri(), "--no-pdf-header-footer", f"--print-to-pdf={paper}")
    return len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes()))


@pytest.mark.long
def test_it_prints_with_everything_unfolded(tmp_path: Path) -> None:
    page = render(facts(taught=taught(40, 40), earlier_measurements=7))
    folded = printed_pages(page, tmp_path)
    assert folded == printed_pages(page.replace("<details>", "<details open>"), tmp_path)
    without = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    assert folded > printed_pages(without, tmp_path) > 0
