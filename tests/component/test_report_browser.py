"""The report in a real browser: Debian's Chromium, headless."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import Page, draw
from report_world import facts, large, taught

from examples.demo.facts import RunFacts
from examples.demo.page import render

pytestmark = pytest.mark.component
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}
DRAWINGS = "document.querySelectorAll('main svg[role=img]').length"
# The vertical places of all jobs, by what they are called.
LEVELS = """Object.fromEntries([...document.querySelectorAll('[data-draw=dag] .job')].map((g) =>
  [g.querySelector('.name').textContent, Number(g.querySelector('rect').getAttribute('y'))]))"""
# Pairs of bars that lie over each other.
OVERLAPS = """(() => {
  const bars = [...document.querySelectorAll('[data-draw=gantt] rect:not(.held)')]
    .map((e) => e.getBBox()).sort((a, b) => a.y - b.y || a.x - b.x);
  return bars.slice(1).filter((b, n) => b.y === bars[n].y
    && b.x < bars[n].x + bars[n].width - 2.01).length;
})()"""


def show(page: Page, run: RunFacts, folder: Path) -> None:
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
    levels = page.run(LEVELS)
    assert levels["align<x>"] < levels["sort"] < levels["merge"]
    said = page.text("[data-draw=gantt]")
    assert "align 1" in said and "merge 3 ✗ failed" in said and "iplant → mu, 12 MB" in said
    assert page.run(OVERLAPS) == 0
    assert page.run("document.querySelectorAll('[data-draw=load] .cut').length") >= 1
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
