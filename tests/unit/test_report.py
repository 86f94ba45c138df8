"""The report: true figures in report.json, a page that stands alone, drawings that do not lie."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_world import T0, alternative, facts, large, placement, taught, transit

from adon.dashboard.standalone import style
from adon.report import drawings
from adon.report import link_loads as loads
from adon.report.run_facts import Bar, LinkSample
from examples.demo.facts import DemoFacts, as_json
from examples.demo.sections import demo_page as render
from examples.scenario import CheckedResult
from monitors.workflows.report import Failure
from network_provisioner.base.model import TransitState

# -- report.json -------------------------------------------------------------------------------


def test_json_has_null_for_what_is_infinite() -> None:
    out = as_json(facts())
    never = out["placements"][0]["alternatives"][1]
    assert never["t_q_s"] is None and never["t_t_s"] is None
    inf = float("inf")
    mapping = {**facts().mapping, "makespan_s": inf, "portfolio": {"greedy": inf}}
    json.dumps(as_json(facts(mapping=mapping)), allow_nan=False)


def test_json_says_what_measurements_changed_only_where_there_were_any() -> None:
    assert as_json(facts(taught=taught()))["changed_by_measurements"] == {
        "makespan_s": None, "moved": [], "beliefs": [],
    }  # fmt: skip
    out = as_json(facts(taught=taught(), earlier_measurements=7))["changed_by_measurements"]
    assert len(out["moved"]) == 2 and len(out["beliefs"]) == 5


def test_every_key_of_the_json_is_documented() -> None:
    documentation = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")

    def keys(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value) | set().union(*map(keys, value.values()), set())
        return set().union(*map(keys, value)) if isinstance(value, list) else set()

    broken = Failure("a", "mu", 1, 1, "", [], [])
    out = as_json(facts(taught=taught(), earlier_measurements=7, failures=[broken]))
    del out["portfolio"]  # its keys are names of policies
    missing = {key for key in keys(out) if f"`{key}`" not in documentation}
    assert not missing


# -- the page ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run",
    [
        facts(),
        facts(taught=taught(), earlier_measurements=7, warnings=["a <b>"]),
        facts(state="failed", science=CheckedResult(), transits=[], bars=[], samples=[], links=[]),
        facts(edges=[("ID0000001", "gone")], mapping={**facts().mapping, "placements": []}),
    ],
)
def test_the_page_stands_alone(run: DemoFacts) -> None:
    page = render(run)
    assert not re.search("<(link|iframe|img)", page)
    page = page.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert "url(" not in page and "@import" not in page and "http://" not in page
    assert "https://" not in page and "script-src 'sha256-" in page


def test_a_picture_of_the_result_is_within_the_page_and_may_be_shown() -> None:
    page = render(facts(science=replace(facts().science, picture=b"\x89PNG")))
    assert '<img alt="The result" src="data:image/png;base64,iVBORw==">' in page
    assert "img-src data:" in page


def test_the_page_escapes_what_users_wrote() -> None:
    page = render(facts(warnings=["<i>w</i>"], workflow='x"><script>'))
    assert "<mu>" not in page and "&lt;mu&gt;" in page
    assert "align<x>" not in page and "<i>w" not in page
    assert page.count("<script") == page.count("</script") == 2


def test_the_page_shows_every_term_and_marks_the_chosen_site() -> None:
    page = render(facts())
    assert page.count('<tr class="chosen">') == 3 + 1  # three jobs, one policy
    for shown in (
        "archive, 130 s old",
        "N 4, of which 1 for this job [collector]",
        "∞",
        "no bound",
    ):
        assert shown in page
    assert "≥ 0.97: missed" in page and "≥ 0.99: met" in page


def test_the_page_of_a_first_run_says_that_nothing_was_known() -> None:
    assert "archive was empty" in render(facts())
    later = render(facts(taught=taught(), earlier_measurements=7))
    assert "archive was empty" not in later and "moved from mu to tacc" in later


def test_left_overs_and_failures_stand_out() -> None:
    bad = '<dd class="bad">'
    assert bad not in render(facts())
    assert f"{bad}failed" in render(facts(state="failed"))
    assert f"{bad}1 / 0" in render(facts(open_reservations=1))


def test_a_large_workflow_stays_small_and_complete() -> None:
    run = large()
    assert run.jobs > 1000
    start = time.process_time()
    page = render(run)
    print(f"{run.jobs} jobs: {len(page)} characters, {time.process_time() - start:.2f} s")
    assert len(page.encode()) < 5e6
    assert all(p["job"] in page for p in run.mapping["placements"])
    assert "Inputs of" in page


def _luminance(colour: str) -> float:
    full = colour if len(colour) == 7 else "#" + "".join(c * 2 for c in colour[1:])
    parts = [int(full[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def _contrast(a: str, b: str) -> float:
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _blend(over: str, under: str, alpha: float) -> str:
    mixed = (
        round(alpha * int(over[i : i + 2], 16) + (1 - alpha) * int(under[i : i + 2], 16))
        for i in (1, 3, 5)
    )
    return "#" + "".join(f"{c:02x}" for c in mixed)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_have_contrast_enough(scheme: int) -> None:
    """WCAG 2.1 AA: 4.5 for text, 3 for what a drawing means."""
    block = re.findall(r":root \{(.*?)\}", style(), re.S)[scheme]
    colour = {
        name: value if len(value) == 7 else "#" + "".join(c * 2 for c in value[1:])
        for name, value in re.findall(r"--(\w+): (#[0-9a-f]+)", block)
    }
    for text in ("fg", "soft", "link", "bad"):
        assert _contrast(colour[text], colour["bg"]) >= 4.5
        assert _contrast(colour[text], colour["card"]) >= 4.5
    for n in range(1, 9):
        site = colour[f"c{n}"]
        assert _contrast(site, colour["bg"]) >= 3
        tinted = _blend(site, colour["bg"], 0.28)
        assert _contrast(colour["fg"], tinted) >= 4.5
        assert _contrast(colour["soft"], tinted) >= 3


# -- what is drawn -----------------------------------------------------------------------------


def drawn(run: DemoFacts) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(
        json.dumps(drawings.figures(run, loads.loads_of(run), {"mu": "s1"}))
    )
    return figures


def test_a_bar_says_when_it_waited_and_ran_and_what_it_moved() -> None:
    moved = transit(job="stage_in_ID0000007")
    bars = [
        Bar("stage_in_ID0000007", "transfer", "mu", T0 + 1, T0 + 2, T0 + 5, True),
        Bar("sort_ID0000012", "compute", "mu", T0 + 5, T0 + 6, T0 + 9, False),
    ]
    groups = dict(drawn(facts(bars=bars, transits=[moved]))["gantt"][0]["groups"])
    assert list(groups) == ["mu", "transfers"]
    (failed,), (transfer,) = groups.values()
    assert (failed["label"], failed["cls"]) == ("sort 12 ✗ failed", "s1 failed")
    assert [failed[key] for key in ("submit", "start", "end")] == [5, 6, 9]
    assert transfer["label"] == "stage_in 7 · iplant → mu, 12 MB"
    ((begun, ended, tip),) = transfer["held"]
    assert (begun, ended) == (10, 14) and "iplant → s2 → s1 → mu" in tip


def test_a_reservation_too_short_to_see_is_marked() -> None:
    def marks(ends: float) -> list[Any]:
        run = facts(transits=[transit(released_at=T0 + ends)])
        (load,) = [figure for figure in drawn(run)["chart"] if figure["title"] == "s2 → s1"]
        return list(load["marks"])

    assert len(marks(10.01)) == 1 and marks(14) == []


def test_where_nothing_was_measured_there_is_no_line() -> None:
    rates = [loads.Rate(0, 1, 8.0), loads.Rate(1, 2, 4.0), loads.Rate(5, 6, 2.0)]
    assert drawings._unbroken(rates) == [[(0, 8.0), (1, 4.0), (2, 4.0)], [(5, 2.0), (6, 2.0)]]


def test_reserved_and_measured_are_per_direction() -> None:
    assert ("s2", "s1") in loads.held_by_hop([transit()])
    assert ("s1", "s2") not in loads.held_by_hop([transit()])
    assert loads.reserved_series([transit()]) == [(T0 + 10, 25e6), (T0 + 14, 0)]
    none = transit(state=TransitState.BEST_EFFORT, path=[], installed_at=0.0)
    assert not loads.held_by_hop([none])
    rates = loads.measured_rates(facts().samples, ("s2", "s1"))
    assert [r.bps for r in rates] == [8e6, 8e6]
    assert not loads.measured_rates(facts().samples, ("s1", "s2"))


def test_a_counter_that_was_reset_tells_nothing_of_that_interval() -> None:
    samples = [LinkSample("a", "b", n, t) for t, n in ((0, 500), (1, 900), (2, 10), (3, 20))]
    assert [r.start for r in loads.measured_rates(samples, ("a", "b"))] == [0, 2]


def test_links_that_no_switch_counts_say_so() -> None:
    by_hop = {load.hop: load for load in loads.loads_of(facts())}
    load = by_hop["iplant", "s2"]
    assert not load.counted and "no switch" in loads.load_sentence(load, T0)
    assert by_hop["s2", "s1"].transferred_bytes == pytest.approx(2e6)


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 50)), max_size=20))
def test_reservations_end_at_zero(spans: list[tuple[float, float]]) -> None:
    held = [
        transit(installed_at=1 + start, released_at=1 + start + length) for start, length in spans
    ]
    steps = loads.reserved_series(held)
    assert not steps or steps[-1][1] == 0
    assert all(0 <= level <= len(held) * 100e6 for _, level in steps)


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=40), st.floats(0, 9))
def test_thinned_counters_lose_no_byte(steps: list[int], at_least_s: float) -> None:
    counts = [sum(steps[: n + 1]) for n in range(len(steps))]
    samples = [LinkSample("a", "b", count, float(n)) for n, count in enumerate(counts)]
    rates = loads.measured_rates(samples, ("a", "b"), at_least_s)
    total = sum(r.bps * (r.end - r.start) / 8 for r in rates)
    assert total == pytest.approx(counts[-1] - counts[0])


# -- words -------------------------------------------------------------------------------------


def test_a_site_without_terms_is_still_told() -> None:
    lone = placement("ID0000009", "soykb::x:1.0", "mu")
    lone["alternatives"] = [alternative("mu", path="", gamma="")]
    page = render(facts(mapping={**facts().mapping, "placements": [lone]}))
    assert "nothing to move" in page
