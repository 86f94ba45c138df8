"""The dashboard as people use it: with nothing there yet, with very much, with any names, enlarged,
in another time zone, without scripts, and while the broker is away."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker_rig import Rig
from browser import Browser, Page
from dashboard_world import (
    AGENTS,
    FAILED,
    PAGES,
    QUIET,
    WORKFLOW,
    everything,
    job,
    measured,
    placement,
    post,
    requests,
    show,
    status,
    workflow,
)
from http_load import broker_process

from examples.testbed.ports import free_port
from monitors.archive.archive import Archive
from monitors.archive.retaining import retain
from monitors.archive.retention.horizons import DAY_S, Keep, Retention
from monitors.base.measurement import Measurement
from network_provisioner.base.errors import BrokerError
from network_provisioner.client.broker import BrokerClient

pytestmark = [pytest.mark.component, pytest.mark.long]

STRANGE = (
    "w" * 300,
    "\u202eworkflow\u202c مشروع سير العمل",
    "<b>bold</b> & \"quoted\" 'name'",
    "a name of many words " * 14,
)
MANY = 1000  # as many as the page lists at once


@contextmanager
def broker(folder: Path, config: dict[str, Any]) -> Iterator[tuple[str, Archive]]:
    with broker_process(folder, config) as url, Archive(folder / "archive.sqlite") as archive:
        yield url, archive


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker to which nothing has happened yet."""
    with broker_process(tmp_path_factory.mktemp("empty"), QUIET) as url:
        yield url


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A day of everything, and things of any name."""
    with broker(tmp_path_factory.mktemp("world"), QUIET | {"monitoring": AGENTS}) as (url, archive):
        now = time.time()
        archive.record_many(everything(now))
        archive.record_many(strange(now))
        for body in requests(now):
            post(url, "/v1/transits", body)
        yield url


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """More workflows than a page lists, and one of many jobs, of which many failed."""
    with broker(tmp_path_factory.mktemp("crowd"), QUIET) as (url, archive):
        now = time.time()
        archive.record_many(crowded(now))
        yield url


def strange(now: float) -> Iterator[Measurement]:
    for n, name in enumerate(STRANGE):
        key = f"strange-{n}"
        yield workflow(key, name, now - 60 - n, user=name, submit_dir=f"/home/{name}")
        yield status(key, now - 50 - n, done=3, in_queue=2)
        yield placement(key, name, "mu", now - 55)
        yield job(
            key, name, f"ns::{name}:1.0", "mu", now - 40, 5.0, outcome="failed", exitcode=1,
            stderr=f"{name}\n{name}\n",
        )  # fmt: skip
        yield measured("tcp_throughput", f"mu>{name}", 1e8, now - 30)


def crowded(now: float) -> Iterator[Measurement]:
    for n in range(MANY + 5):
        key = f"many-{n:04d}"
        old = n >= MANY  # the ones that changed first, beyond what is listed
        yield workflow(key, key, now - 5000 - n, user="zoe" if old else "ada")
        yield status(key, now - 4000 - n, "removed" if old else "done", done=4)
    yield workflow("large", "large", now - 3000)
    yield status("large", now - 100, done=1960, fail=40)
    for n in range(2000):
        bad = {"outcome": "failed", "exitcode": 1, "stderr": "no\n"} if n % 50 == 0 else {}
        yield job("large", f"t_{n}", f"ns::k{n % 9}:1.0", "mu", now - 2500 + n, 5.0, **bad)


def width_of(page: Page) -> int:
    return int(page.run("document.documentElement.scrollWidth"))


# -- nothing there ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("workflows", "adon monitor run SUBMIT_DIR --broker "),
        ("decisions", "adon transit request"),
        ("measurements", "adon measure run"),
        ("agents", "adon agent run --config agent.yml"),
        ("pool", "adon pool enlarge"),
    ],
)
def test_an_empty_page_says_what_would_fill_it(page: Page, empty: str, name: str, how: str) -> None:
    show(page, empty, name)
    assert any(how in code for code in page.run(CODES))
    assert page.problems == []


CODES = "[...document.querySelectorAll('.empty code')].map((e) => e.textContent)"


@pytest.mark.parametrize(
    ("name", "shown"), [("nothing-like-this", "nothing-like-this"), ("50%", "50%"), ("%41", "A")]
)
def test_what_there_is_not_leads_back(page: Page, empty: str, name: str, shown: str) -> None:
    page.go(f"{empty}/dashboard/#/workflows/{name}")
    page.wait("document.querySelector('[role=alert]')")
    assert f"unknown workflow '{shown}'" in page.text()
    page.click("main nav a")
    page.wait("document.querySelector('h1').textContent === 'Workflows'")


def test_without_scripts_one_line_says_so(page: Page, empty: str) -> None:
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.go(f"{empty}/dashboard/")
    page.wait("document.querySelector('noscript p')?.innerText")
    (line,) = page.text("main").strip().splitlines()
    assert line.startswith("This page needs JavaScript.") and "adon monitor list" in line
    assert page.text("#line") == ""


# -- any names, any size ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "name", ["workflows", "decisions", "measurements?metric=tcp_throughput", "workflows/strange-{}"]
)
def test_no_name_makes_a_page_wider(page: Page, world: str, name: str, width: int) -> None:
    page.look(width, 900, touch=width < 600)
    for n in range(len(STRANGE) if "{}" in name else 1):
        show(page, world, name.format(n))
        page.wait(f"document.body.innerText.includes({json.dumps(STRANGE[2])}) || {n} !== 2")
        assert width_of(page) == width
        assert page.run("document.querySelectorAll('main b').length") == 0


@pytest.mark.parametrize("name", [*PAGES, f"workflows/{WORKFLOW}"])
def test_enlarged_twice_or_four_times_nothing_is_cut_off(page: Page, world: str, name: str) -> None:
    """WCAG 2.2, 1.4.4 and 1.4.10: a window of 1280 pixels at 200 and 400 %."""
    for width, factor in ((640, 2), (320, 4)):
        size = {"width": width, "height": 450, "deviceScaleFactor": factor, "mobile": False}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        show(page, world, name)
        assert width_of(page) == width


def test_times_say_their_zone(page: Page, world: str) -> None:
    page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Tehran")
    show(page, world, "network")
    assert page.text("footer") == "Times are those of this device: Asia/Tehran, UTC+3:30."


def test_the_pool_says_what_was_done_and_why(page: Page, world: str) -> None:
    show(page, world, "pool")
    decisions, leases = (
        page.text("section[data-key=decided]"),
        page.text("section[data-key=leased]"),
    )
    assert "2 m1.large started, 1 drained, 1 deleted" in decisions
    assert "8 jobs wait and no slot is free" in decisions
    assert "8 slots requested" in leases
    show(page, world, "decisions?kind=pool")
    reasons = page.run("document.querySelector('li.item table').textContent")
    assert "money: enough for 2 of 3 m1.large" in reasons


def badly_recorded(now: float) -> Iterator[Measurement]:
    """What a researcher may record of its own workflows: others look at the same pages."""
    for n, at in enumerate((1e15, 1e300, -5.0)):
        key = f"odd-{n}"
        yield workflow(key, key, at, planned_at="x", user=7)
        yield status(key, at, done=1, in_queue=2)
        yield measured(
            "placement", "mu", 4.0, at, "t", key, f"placement:{key}:j", job=["j"], policy={},
            transformation=7, seconds=10**400, reason=5,
            alternatives=[{"site": {"a": 1}, "seconds": "x"}, {}, 7],
        )  # fmt: skip
        yield job(key, "j", "k", "mu", at, 5.0, host=[], stderr=7, cpu_s="x", outcome=None)
        yield measured(
            "job_transfer",
            "mu>tacc",
            1.0,
            at,
            "t",
            key,
            f"job_transfer:{key}",
            path=[{}],
            bytes="x",
        )
        yield measured(
            "expansion", f"{key}:x", 1.0, at, "t", key, f"expansion:{key}", until="x", reason=[]
        )
        yield measured(
            "pool_decision", "adon", 1.0, at, "t", "", f"pool_decision:{key}", start=7, drain="x",
            delete={"w": ["x"]}, why=[], demand={"queued": []}, machines=None, reason={},
        )  # fmt: skip
        yield measured("rtt", "mu>tacc", 0.05, at, "t", key, f"rtt:{key}")
    yield measured("rtt", "mu>tacc", 1e308, now - 5)


def test_what_somebody_recorded_badly_spoils_no_page(page: Page, tmp_path: Path) -> None:
    with broker(tmp_path, QUIET) as (url, archive):
        archive.record_many(badly_recorded(time.time()))
        for name in (*PAGES, *(f"workflows/odd-{n}" for n in range(3))):
            show(page, url, name)
            assert "cannot be drawn" not in page.text(), name
        assert page.problems == []


# -- very much -------------------------------------------------------------------------------------


def test_more_workflows_than_are_listed(page: Page, crowd: str) -> None:
    show(page, crowd, "workflows")
    page.wait("document.querySelector('caption').textContent.includes('among')")
    assert "150 of 1,000 workflows among the 1,000 that changed last" in page.text("caption")
    assert "1,000 more" in page.text()
    page.run("document.querySelector('[name=state]').focus()")
    page.type("removed")
    page.run(
        "(() => { const e = document.querySelector('[name=state]'); e.value = 'removed';"
        " e.dispatchEvent(new Event('change', {bubbles: true})) })()"
    )
    page.wait("document.querySelector('[data-key=\"many-1004\"]')")  # the broker has found it
    assert page.text("caption") == "5 workflows"


def test_a_large_workflow_shows_where_it_stands_before_its_jobs(page: Page, crowd: str) -> None:
    page.go("about:blank")
    page.call(
        "Page.addScriptToEvaluateOnNewDocument",
        source="window.order = []; addEventListener('DOMContentLoaded', () => new"
        " MutationObserver(() => { for (const w of ['being looked at', 'How long jobs ran'])"
        " if (document.body.innerText.includes(w) && !order.includes(w)) order.push(w) })"
        ".observe(document.body, {subtree: true, childList: true}))",
    )
    show(page, crowd, "workflows/large")
    page.wait("order.length === 2")
    assert page.run("order") == ["being looked at", "How long jobs ran"]
    shown = "document.querySelectorAll('[data-key=failures] article').length"
    assert page.run(shown) == 20
    assert "20 of 40 are shown" in page.text("[data-key=failures]")
    page.click("[data-act=failures]")
    page.wait(f"{shown} === 40")


# -- what people ask -------------------------------------------------------------------------------


def test_who_waits_and_for_what(page: Page, tmp_path: Path) -> None:
    with broker_process(tmp_path, QUIET) as url:
        for n, (src, least) in enumerate((("mu", 1.2e8), ("local", 1.5e8))):
            body = {"id": f"t{n}", "src": src, "dst": "tacc", "min_bps": least}
            post(url, "/v1/transits", body)
        show(page, url, "network")
        row = page.text('[data-key=waiting] [data-key="t1"]')
        assert "150 Mb/s" in row and "held by t0" in row


def test_a_decision_says_what_the_job_does_and_for_which_workflow(page: Page, world: str) -> None:
    show(page, world, f"decisions?workflow={WORKFLOW}&kind=placement")
    assert "of soykb, the newest first" in page.text(".head")
    head = page.text('[data-key$=":sort_ID0000007"] .head')
    assert "bwa_mem" in head and "for soykb" in head


def test_what_was_rolled_up_or_is_too_much_is_on_the_plot(page: Page, tmp_path: Path) -> None:
    """By the medians of its days, or hours; and counted."""
    with broker(tmp_path, QUIET) as (url, archive):
        now = time.time()
        archive.record_many(
            measured("rtt", "mu>tacc", 0.05 + n % 2 / 1e3, now - 3600.0 * n) for n in range(480)
        )
        archive.record_many(
            measured("rtt", "mu>iplant", 0.05, now - 1.5 * n) for n in range(12_000)
        )
        assert retain(archive, Retention(Keep(5 * DAY_S)), now).removed > 300
        show(page, url, "measurements?metric=rtt&subject=mu%3Etacc")
        for by in ("hour", "day"):
            page.run("document.querySelector('[name=span]').focus()")
            page.wait(f"document.querySelector('.key').innerText.includes('median of each {by}')")
            assert page.run("document.querySelectorAll('figure path.series').length") == 2
            if by == "hour":
                page.press("ArrowDown")  # 30 days
        assert "measured\n480\nin 30 d" in page.text()
        page.go(f"{url}/dashboard/#/measurements?metric=rtt&subject=mu%3Eiplant")
        page.wait("document.querySelector('h2').textContent.includes('iplant')")
        page.wait(
            "document.querySelector('main').innerText.includes('measured\\n12,000\\nin 30 d')"
        )
        page.wait(
            "document.querySelector('.key').innerText.includes('too much to show one by one')"
        )
        assert page.problems == []


def test_what_was_never_measured_is_said_and_nothing_shown_instead(page: Page, world: str) -> None:
    show(page, world, "measurements?metric=udp_throughput&subject=mu%3Etacc")
    page.wait(
        "document.body.innerText.includes('No udp throughput of mu → tacc has been measured')"
    )
    assert page.run("document.querySelectorAll('main .series').length") == 0
    show(page, world, "measurements?metric=rtt&subject=mu%3Etacc")
    page.wait("document.querySelector('main .series')")
    assert "from " in page.text(".cards") and "the newest" in page.text(".cards")


def test_where_no_job_ended_well_there_is_no_time(page: Page, world: str) -> None:
    show(page, world, f"workflows/{FAILED}")
    assert page.run("document.querySelector('td[data-label=median]').textContent") == "–"
    assert "4\nwait for failed ones" in page.text(".cards")


def test_a_pool_that_nobody_looks_at_is_said_to_be_old(page: Page, tmp_path: Path) -> None:
    with broker(tmp_path, QUIET) as (url, archive):
        then = time.time() - 1500
        for metric, value in (("pool_slots", 8.0), ("pool_busy", 3.0), ("pool_demand", 3.0)):
            archive.record(measured(metric, "", value, then, "condor"))
        show(page, url, "pool")
        assert "The pool was last read" in page.text(".note")
        ends = page.run(
            "[...document.querySelectorAll('path.series')].map((p) => p.getBBox()).map((b) =>"
            " (b.x + b.width) / document.querySelector('figure svg').clientWidth)"
        )
        assert ends and max(ends) < 0.8  # no line goes on to now


def test_what_is_past_is_shown_as_far_back_as_it_is(page: Page, tmp_path: Path) -> None:
    """As of a demo of this morning: an hour would show nothing of it."""
    rig = Rig(tmp_path / "state.sqlite")
    rig.clock.now = time.time() - 5 * 3600
    rig.ask("w1:stage_in_0:0:mu-tacc", "mu", "tacc")
    rig.let_pass(60.0)
    rig.broker.release("w1:stage_in_0:0:mu-tacc")
    rig.broker.stop()
    with broker(tmp_path, QUIET) as (url, archive):
        for metric in ("pool_slots", "pool_busy", "pool_demand"):
            for ago in (18_060.0, 18_000.0):
                archive.record(measured(metric, "", 3.0, time.time() - ago, "condor"))
        for name, drawing in (("network", ".block"), ("pool", "path.series")):
            show(page, url, name)
            page.wait(f"document.querySelector('main {drawing}')")
            chosen = "document.querySelector('[name=span]').selectedOptions[0].textContent"
            assert page.run(chosen) == "6 hours"
        assert page.problems == []


def test_a_broker_that_is_stopped_and_started_again(browser: Browser, tmp_path: Path) -> None:
    """Each page says so, how old what it shows is, and goes on by itself."""
    listen, archive = f"127.0.0.1:{free_port()}", tmp_path / "archive.sqlite"
    places = {"listen": listen, "state": str(tmp_path / "s.sqlite"), "archive": str(archive)}
    file = tmp_path / "adon.yml"
    file.write_text(json.dumps(QUIET | {"monitoring": AGENTS, "broker": places}), encoding="utf-8")
    with browser.tab() as page:
        page.look()
        with serving(file):
            with Archive(archive) as opened:
                opened.record_many(everything())
            answers(f"http://{listen}")
            show(page, f"http://{listen}", "workflows")
        page.wait("document.getElementById('line').textContent === 'not connected'")
        alert = "document.querySelector('[role=alert]')"
        said = "the broker does not answer: what is shown is of "
        page.wait(f"{alert}?.innerText.includes('{said}')")
        assert "soykb" in page.text()
        with serving(file), Archive(archive) as opened:
            page.wait("document.getElementById('line').textContent === 'live'")
            opened.record(status(WORKFLOW, time.time(), done=13, in_queue=1))
            row = f"document.querySelector('[data-key=\"{WORKFLOW}\"]')"
            page.wait(f"{row}.cells[9].textContent === '13'")
            page.wait(f"!{alert}")


def answers(url: str) -> None:
    """Wait for a broker: a browser does not look again by itself for a page that was not there."""
    end = time.monotonic() + 300
    while True:
        try:
            BrokerClient(url, 60.0).health()
            return
        except BrokerError:
            assert time.monotonic() < end
            time.sleep(0.1)


@contextmanager
def serving(file: Path) -> Iterator[None]:
    """A broker as adon.yml says, until it is killed."""
    words = [sys.executable, "-m", "adon.service.serve", "--config", str(file)]
    with (file.parent / "log").open("ab") as log, subprocess.Popen(words, stderr=log) as process:
        try:
            yield
        finally:
            process.kill()


# -- who asks --------------------------------------------------------------------------------------


def test_who_does_not_say_is_told_where_to(page: Page, tmp_path: Path) -> None:
    keys = [{"name": "ada", "role": "researcher", "token": "adon_a-token-of-this-test-alone"}]
    with broker_process(tmp_path, QUIET | {"security": {"tokens": keys}}) as url:
        page.go(f"{url}/dashboard/#/pool")
        page.wait("document.getElementById('ask').open")
        page.press("Escape")
        page.wait("document.querySelector('[role=alert]')")
        assert "“Token”, at the top right" in page.text("[role=alert]")
        page.run("document.getElementById('key').focus()")
        page.press("Enter")
        page.wait("document.activeElement.id === 'token'")
        page.press("Escape")
        page.wait("document.activeElement.id === 'key'")  # where one was before
