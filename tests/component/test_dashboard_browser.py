"""The dashboard in a real browser, Debian's Chromium, on a real broker."""

from __future__ import annotations

import csv
import json
import os
import shlex
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page
from dashboard_world import (
    AGENTS,
    FOREIGN,
    INSIDE,
    PAGES,
    QUIET,
    WORKFLOW,
    everything,
    measured,
    post,
    requests,
    show,
    status,
)
from http_load import broker_process
from oidc_provider import Provider, issuer, provider

from adon.cli.main import main
from monitors.archive.archive import Archive

SHOTS = os.environ.get("ADON_SHOTS")
"""A folder for pictures of every page, to be looked at."""
DETAIL = f"workflows/{WORKFLOW}"

TOKEN = "adon_a-token-of-this-test-alone"

pytestmark = pytest.mark.component


class World:
    """A broker with a day of everything in its archive."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.archive = Archive(folder / "archive.sqlite")
        self.began = time.time()
        self.archive.record_many(everything(self.began))
        for body in requests(self.began):
            post(self.url, "/v1/transits", body)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("broker")
    with broker_process(folder, QUIET | {"monitoring": AGENTS}) as url:
        made = World(url, folder)
        yield made
        made.archive.close()


# -- every page ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, "light"),
        (390, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.long),
        pytest.param(390, "light", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("name", [*PAGES, DETAIL])
def test_it_is_drawn_and_no_wider_than_the_window(
    page: Page, world: World, name: str, width: int, scheme: str
) -> None:
    page.look(width, 900, scheme, touch=width < 600)
    show(page, world.url, name)
    assert page.run("document.documentElement.scrollWidth") == width
    assert page.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)"
    )
    assert page.run(FAINT) == []
    assert page.run(SHRUNK) == []
    assert page.run(CUT) == []
    assert page.problems == []
    assert {
        url for url in page.requests if not url.startswith((world.url, "about:", "data:"))
    } == set()
    if SHOTS:
        page.shot(
            Path(SHOTS) / f"{name.partition('/')[0] + 's' * ('/' in name)}-{width}-{scheme}.png"
        )


def test_a_workflow_says_what_it_waits_for_and_what_was_saved(page: Page, world: World) -> None:
    show(page, world.url, DETAIL)
    page.wait("document.querySelector('[data-key=dag] svg')")
    assert page.text("[data-key=awaits]").startswith("It waits for level 2 of 4: 2 of 5 jobs left")
    boxes = page.run("document.querySelectorAll('[data-key=dag] g.job').length")
    assert boxes == 12
    saved = page.text("[data-key=saved]")
    assert "7 min 58 s" in saved and "iplant → mu" in saved and "80 Mb/s" in saved
    assert page.problems == []


def test_a_template_is_tried_before_it_is_saved(page: Page, world: World) -> None:
    show(page, world.url, "templates/default")
    page.click("[data-key='fold:form:template'] summary")
    page.run("document.querySelector('input[name=min_throughput]').focus()")
    page.run("document.activeElement.select()")
    page.type("90 Gb/s")
    page.click("button[value=also]")
    page.wait("document.querySelector('[data-key=tried]')")
    assert "no path" in page.text("[data-key=tried]")
    command = shlex.split(page.text("[data-command=template-also]").partition("<<")[0])
    assert command == ["adon", "template", "try", "default", "--file", "/dev/stdin"]
    assert page.run("document.querySelector('input[name=min_throughput]').value") == "90 Gb/s"


# Drawings that are smaller than they were drawn, and cannot be read, where they could be scrolled.
SHRUNK = """[...document.querySelectorAll('.wide > svg')].map((drawing) =>
  [drawing.viewBox.baseVal.width, drawing.getBoundingClientRect().width])
  .filter(([drawn, shown]) => shown < drawn - 1)"""


# Lists whose chosen words do not fit.
CUT = """[...document.querySelectorAll('select')].filter((list) => {
  const whole = list.cloneNode();
  whole.append(...[...list.selectedOptions].map((option) => option.cloneNode(true)));
  whole.style.cssText = 'position: absolute; width: auto';
  list.parentElement.append(whole);
  const wide = whole.offsetWidth;
  whole.remove();
  return list.checkVisibility() && wide > list.offsetWidth + 1;
}).map((list) => list.selectedOptions[0]?.text)"""


# Text that has less contrast with what is behind it than 4.5:1 (WCAG 2.2, 1.4.3).
FAINT = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const found = rgba(getComputedStyle(e).backgroundColor);
      if (found[3] > 250) return found;
    }
    return rgba(getComputedStyle(document.body).backgroundColor);
  };
  const faint = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.nodeValue.trim());
    if (!own || !e.getClientRects().length || e.closest('script, noscript')) continue;
    const style = getComputedStyle(e);
    const ink = e instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(rgba(ink)), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(e.outerHTML.slice(0, 120));
  }
  return faint;
})()"""


@pytest.mark.long
@pytest.mark.parametrize("name", [*PAGES, DETAIL])
def test_who_cannot_see_it_can_read_it(page: Page, world: World, name: str) -> None:
    show(page, world.url, name)
    assert page.run("document.documentElement.lang") == "en"
    assert page.run("document.querySelectorAll('main h1').length") == 1
    for landmark in ("header", "nav[aria-label]", "main"):
        assert page.run(f"document.querySelectorAll('{landmark}').length") >= 1, landmark
    assert page.run("document.querySelector('nav [aria-current=page]').textContent")
    assert page.run("document.querySelectorAll('[aria-live]').length") == 1
    lacking = page.run(
        "[...document.querySelectorAll('table')].filter((t) => !t.querySelector('th[scope=col]'))"
        ".length + [...document.querySelectorAll('svg[role=img]')].filter((s) =>"
        " !s.getAttribute('aria-label')).length + [...document.querySelectorAll("
        "'input, select, button')].filter((e) => !(e.labels?.length || e.textContent.trim() ||"
        " e.ariaLabel)).length"
    )
    assert lacking == 0
    # Who speaks to a page says what stands on a button (WCAG 2.2, 2.5.3).
    unlike = page.run(
        "[...document.querySelectorAll('main button[aria-label], main a[aria-label]')].filter("
        "(e) => !e.ariaLabel.toLowerCase().includes(e.textContent.trim().toLowerCase()))"
        ".map((e) => e.outerHTML)"
    )
    nameless = page.run(
        "[...document.querySelectorAll('pre[aria-label]:not([role])')].map((e) => e.outerHTML)"
    )
    assert (unlike, nameless) == ([], [])


def test_what_a_job_is_called_is_shown_and_never_run(page: Page, world: World) -> None:
    show(page, world.url, DETAIL)
    assert FOREIGN in page.text()
    assert page.run("document.querySelectorAll('main img').length") == 0
    refused = page.run(
        "(() => { try { document.body.innerHTML = '<p>'; return false } catch { return true } })()"
    )
    assert refused  # the browser itself sees to it


# -- what they show ------------------------------------------------------------------------------


def test_workflows_and_one_of_them(page: Page, world: World) -> None:
    show(page, world.url, "workflows")
    text = page.text()
    assert "soykb" in text and "montage-m17" in text and "failed" in text
    page.click("[name=inner]")
    page.wait(f"document.querySelector('[data-key=\"{INSIDE}\"]')")
    page.click(f'[data-key="{WORKFLOW}"] a')
    page.wait("document.querySelector('h1')?.textContent === 'soykb'")
    page.wait("document.body.innerText.includes('How long jobs ran')")
    text = page.text()
    assert "sort: cannot open reads.fq: No such file or directory" in text
    assert "iplant → s2 → s1 → mu" in text and "the shortest T_t of three sites" in text
    assert "run\n1" in page.text(".cards")
    page.click("[name=each]")
    page.wait("document.querySelectorAll('[data-key=ran] svg text.on-bar').length === 9")
    page.click("[data-act=measure]")  # nobody follows it
    page.wait("document.body.innerText.includes('the request stays')")


def test_the_network_now_and_later(page: Page, world: World) -> None:
    show(page, world.url, "network")
    assert "s1 → s2" in page.text()
    page.click('tbody [data-hop="s1>s2"]')
    page.wait("document.body.innerText.includes('Who holds s1 → s2')")
    assert "w1:stage_out_1:0:mu-tacc" in page.text('[data-key="holders"]')
    page.run("document.querySelector('[data-act=at]').focus()")
    page.press("ArrowRight", 6)
    page.wait("document.querySelector('label[for=at]').textContent.includes('in ')")
    page.press("Home")  # an hour ago, when there was no broker
    page.wait("document.querySelector('label[for=at]').textContent.includes(' ago')")
    page.wait("document.querySelector('[data-key=holders]').innerText.includes('Nobody')")
    page.click("[data-act=now]")
    page.wait("document.querySelector('label[for=at]').textContent.includes('now')")
    wide = "document.querySelector('.map svg').getBoundingClientRect().width"
    before = page.run(wide)
    page.click("[data-act=zoom][data-by='1']")
    page.wait(f"{wide} > 1.4 * {before} && location.hash.includes('zoom=1.5')")
    assert page.run("document.documentElement.scrollWidth") == page.run("innerWidth")
    assert page.run(CROWDED) == 0


# How many of 70 boxes lie over another once the map has moved them apart.
CROWDED = """import('./drawings/map.js').then(({apart}) => {
  const boxes = [...Array(70).keys()].map((n) => (
    {x: 100 * Math.sin(n * n) + 6 * n, y: 90 * Math.cos(5 * n), half: 12 + n % 20, tall: 10}));
  apart(boxes);
  const over = (a, b) => Math.abs(a.x - b.x) < a.half + b.half && Math.abs(a.y - b.y) < 20;
  return boxes.filter((a, n) => boxes.some((b, m) => m < n && over(a, b))).length;
})"""


def test_the_address_keeps_what_is_chosen(page: Page, world: World) -> None:
    show(page, world.url, f"{DETAIL}?outcome=failed")
    assert page.run("document.querySelectorAll('[data-key=jobs] tbody tr').length") == 1
    show(page, world.url, f"network?at={round(world.began) + 1200}")
    assert page.text("label[for=at]").startswith("Shown: in ")
    page.click("[data-act=now]")
    page.wait("!location.hash.includes('at=')")


def test_a_form_says_what_it_lacks_and_a_transfer_without_promise_says_none(
    page: Page, world: World
) -> None:
    show(page, world.url, "transfers/w3:reserved")
    assert "undefined" not in page.text()
    page.run("document.querySelector('[data-form=change]').closest('details').open = true")
    assert page.run("document.querySelector('[data-command=change]')") is None
    page.click("[data-form=change] [type=submit]")
    page.wait("document.body.innerText.includes('A minimum or a maximum is needed')")


def test_a_filter_leaves_the_matrix_whole(page: Page, world: World) -> None:
    show(page, world.url, "pairs?site=local")
    assert "Mb/s" in page.text("tr[data-key=mu] td[data-label=tacc]")
    assert page.run("document.querySelector('tr[data-key=\"mu>tacc\"]')") is None


HELD = """import('./drawings/holdings.js').then(({peak, pieces}) => {
  const list = [[0, 10, 2], [0, 4, 3], [6, 20, 4]].map(([from, to, bps]) => ({from, to, bps}));
  const parts = pieces(list, 2, 12);
  return [parts.map(({from, to, bps}) => [from, to, bps]), peak(parts)];
})"""


def test_the_fullest_is_by_what_is_held_at_once(page: Page, world: World) -> None:
    show(page, world.url, "network")
    assert page.run(HELD) == [[[2, 4, 5], [4, 6, 2], [6, 10, 6], [10, 12, 4]], 6]


def test_decisions_say_why(page: Page, world: World) -> None:
    show(page, world.url, "decisions")
    text = page.text()
    assert "has the highest score" in text and "the shortest T_t" in text
    page.run("document.querySelector('[name=kind]').focus()")
    page.press("ArrowDown")  # paths of transits
    page.wait("!document.querySelector('main').innerText.includes('the shortest T_t')")
    page.run("document.querySelector('details summary').focus()")
    page.press("Enter")
    page.wait("document.querySelector('details[open] table')")
    assert "left out because" in page.text("details[open]")


def test_anomalies_are_marked_on_the_plot(page: Page, world: World) -> None:
    show(page, world.url, "measurements?metric=tcp_throughput&subject=mu%3Etacc")
    page.wait("document.querySelector('.badmark')")
    text = page.text()
    assert "A: change of level" in text and "181 Mb/s → 121 Mb/s (−33 %)" in text
    assert "dip" in text  # of the other path
    page.click(".tiles a:not([aria-current])")
    page.wait("document.querySelector('h2').textContent.includes('iplant → mu')")
    page.wait("document.querySelector('.band')")


def test_the_pool_and_what_it_was_given(page: Page, world: World) -> None:
    show(page, world.url, "pool")
    page.wait("document.querySelectorAll('figure .series').length >= 3")
    assert "soykb-night" in page.text() and "8 slots requested" in page.text()


# -- forms ---------------------------------------------------------------------------------------


def fill(page: Page, form: str, **values: str) -> None:
    """Unfold a form and give its fields values, as a user types and chooses them."""
    page.wait(f"document.querySelector('[data-form={form}]')")
    page.run(
        f"(() => {{ const form = document.querySelector('[data-form={form}]');"
        " form.closest('details').open = true;"
        f" for (const [name, value] of Object.entries({json.dumps(values)})) {{"
        " const field = form.elements[name]; field.value = value;"
        " field.dispatchEvent(new Event('input', {bubbles: true})) } })()"
    )


def submit(page: Page, form: str) -> str:
    """Send it; what is said beside the button."""
    page.click(f"[data-form={form}] [type=submit]")
    said = f"document.querySelector('[data-form={form}] .row span')"
    page.wait(f"{said} || !document.querySelector('[data-form={form}]')")
    return str(page.run(f"{said}?.textContent ?? document.getElementById('said').textContent"))


def equivalents(page: Page, form: str, folder: Path) -> tuple[list[str], tuple[str, str, bytes]]:
    """The words of the command that a form shows, and verb, address and body of its REST call.
    What the command reads as a here-document is in a file in ``folder``."""
    command, _, document = str(
        page.run(f"document.querySelector('[data-command={form}]').textContent")
    ).partition(" <<'END'\n")
    call = shlex.split(page.run(f"document.querySelector('[data-call={form}]').textContent"))
    body = call[call.index("-d") + 1] if "-d" in call else ""
    address = next(word for word in call if word.startswith("http"))
    file = folder / "input"
    file.write_text(document.removesuffix("END"), encoding="utf-8")
    words = [str(file) if word == "/dev/stdin" else word for word in shlex.split(command)[1:]]
    return words, (call[call.index("-X") + 1], address, body.encode())


def test_forms_do_what_their_command_and_their_call_do(
    page: Page, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADON_BROKER", world.url)

    def sent(form: str, **values: str) -> str:
        """The form is sent last: its command and its call are made before, and taken."""
        fill(page, form, **values)
        page.wait(f"document.querySelector('[data-command={form}]')")
        words, (verb, address, body) = equivalents(page, form, tmp_path)
        assert main(words) == 0, words
        kind = {"Content-Type": "application/json"} if body else {}
        with urllib.request.urlopen(
            urllib.request.Request(address, body or None, kind, method=verb)
        ) as answer:
            assert answer.status in (200, 201)
        return submit(page, form)

    show(page, world.url, "transfers")
    fill(page, "request", src="mu", dst="iplant", min_bps="3 parsec", id="form-1")
    assert "found “3 parsec”, expected a rate such as 100 Mb/s" in submit(page, "request")
    fields = {"src": "mu", "dst": "iplant", "min_bps": "2 Mb/s", "max_bps": "3 Mb/s"}
    assert sent("request", **fields, size_bytes="2 GB", id="form-1").startswith("form-1: installed")
    show(page, world.url, "transfers/form-1")
    assert "2 Mb/s" in page.text(".cards")
    assert sent("change", max_bps="4 Mb/s") == "2 Mb/s to 4 Mb/s"
    assert sent("release").endswith("is released")
    show(page, world.url, "templates")
    figures = {"min_throughput": "20 Mb/s", "weight_throughput": "1", "applications": "blast*"}
    assert sent("template", name="form-2", **figures) == "version 1 is saved"
    show(page, world.url, "policies")
    assert sent("policy", name="form 3", first="soykb", end="2040-01-01T10:00").endswith("running")
    assert "form 3" in page.text("table") and sent("stop", name="form 3") == "form 3 has ended"
    show(page, world.url, "network")
    later = {"at": "2039-12-01T22:00", "until": "2039-12-02T02:00", "note": "new optics"}
    assert "r1-s2 will be out of service" in sent("drain", element="r1-s2", **later)
    page.wait("document.querySelector('[data-form=cancel]')")
    fill(page, "cancel", element="r1-s2")
    words, _ = equivalents(page, "cancel", tmp_path)
    assert main(words) == 0
    assert page.problems == []


def test_a_list_is_filtered_sorted_and_saved_and_its_address_says_so(
    page: Page, world: World
) -> None:
    for n in range(3):
        body = {
            "id": f"list-{n}",
            "src": "iplant",
            "dst": "local",
            "min_bps": 1e6,
            "project": "cms",
        }
        post(world.url, "/v1/transits", body)
        report = {"bytes": 10**9 * (n + 1), "seconds": 90, "outcome": " =reset" if n else "success"}
        post(world.url, f"/v1/transits/list-{n}/release", report)
    show(page, world.url, "transfers?text=list-&failed=true")
    rows = "[...document.querySelectorAll('tbody tr')].map((row) => row.dataset.key)"
    assert page.run(rows) == ["list-2", "list-1"]
    page.click("[data-column=goodput]")
    page.wait(f"{rows}[0] === 'list-1'")
    assert page.run("location.hash").endswith("?text=list-&failed=true&order=goodput")
    page.run(
        "window.saved = new Promise((told) => { HTMLAnchorElement.prototype.click = () => {};"
        " URL.createObjectURL = (blob) => { told(blob.text()); return 'blob:x' } }); 0"
    )
    page.click("[data-act=csv]")
    row = next(csv.DictReader(page.run("window.saved").splitlines()))
    assert (row["id"], row["outcome"], row["project"]) == ("list-1", "' =reset", "cms")
    page.run("document.querySelector('[name=text]').focus()")
    page.type("no such")
    page.wait("document.querySelector('.empty')?.textContent === 'Nothing matches.'")
    show(page, world.url, "pairs?trouble=failed")
    page.wait(f"{rows}.includes('iplant>local')")


# -- live ----------------------------------------------------------------------------------------


def test_a_change_is_on_the_page_at_once(page: Page, world: World) -> None:
    show(page, world.url, "workflows")
    row = f"document.querySelector('[data-key=\"{WORKFLOW}\"]')"
    page.run("document.querySelector('[name=text]').focus()")
    page.type("soykb")
    page.wait(f"{row} && !document.body.innerText.includes('montage')")
    lags = []
    for done in (9, 10, 11):
        page.run(
            "window.seen = new Promise((told) => new MutationObserver(() => {"
            f" if ({row}?.cells[9].textContent === '{done}') told(Date.now() / 1000) }})"
            ".observe(document.body, {subtree: true, childList: true, characterData: true})); 0"
        )
        at = time.time()
        world.archive.record(status(WORKFLOW, at, done=done, in_queue=14 - done))
        lags.append(page.run("window.seen") - at)
    print(f"from the archive to the page: {[round(lag, 3) for lag in lags]} s")
    world.archive.record(status(WORKFLOW, time.time(), "done", done=14))
    page.wait("document.getElementById('said').textContent === 'soykb is done'")
    # Who types is not disturbed.
    assert page.run("document.activeElement.value") == "soykb"


def test_an_anomaly_is_told(page: Page, world: World) -> None:
    show(page, world.url, "measurements?metric=tcp_throughput&subject=mu%3Etacc")
    now = time.time()
    details = {
        "kind": "outage", "metric": "tcp_throughput", "since": now - 60, "until": None,
        "noticed": now, "before": 1.2e8, "after": None, "confidence": 1.0, "why": "nothing came",
    }  # fmt: skip
    world.archive.record(measured("anomaly", "mu>tacc", -1.0, now, "plateaus", **details))
    page.wait("document.getElementById('said').textContent.includes('outage')")
    page.wait("document.querySelector('main').innerText.includes('nothing came')")


def test_a_transit_is_on_the_map_when_it_begins_and_gone_when_it_ends(
    page: Page, world: World
) -> None:
    show(page, world.url, "network")
    share = "document.querySelector('tr[data-key=\"tacc>s2\"] td[data-label=share]').textContent"
    assert page.run(share) == "0 %"
    body = {"id": "live-1", "src": "tacc", "dst": "local", "min_bps": 5e6, "max_bps": 6e6}
    assert post(world.url, "/v1/transits", body)["state"] == "installed"
    page.wait(f"{share} === '0.5 %'")
    post(world.url, "/v1/transits/live-1/release", {})
    page.wait(f"{share} === '0 %'")


# -- by keyboard ---------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", [*PAGES, DETAIL])
def test_everything_is_reached_by_keyboard_and_seen_to_be(
    page: Page, world: World, name: str
) -> None:
    show(page, world.url, name)
    page.run(
        "window.wanted = new Set(document.querySelectorAll('a[href], button:not([hidden]), select,"
        ' input, summary, [tabindex="0"]\')); for (const e of window.wanted)'
        " if (!e.checkVisibility() || e.closest('dialog, details:not([open]) > :not(summary)'))"
        " window.wanted.delete(e); window.blind = []; document.activeElement.blur()"
    )
    page.press("Tab")
    assert page.run("document.activeElement.textContent") == "To the content"
    for _ in range(int(page.run("window.wanted.size")) + 5):
        page.run(
            "(() => { const e = document.activeElement; window.wanted.delete(e);"
            " if (e !== document.body && getComputedStyle(e).outlineStyle === 'none')"
            " window.blind.push(e.outerHTML.slice(0, 80)) })()"
        )
        page.press("Tab")
    assert page.run("[...window.wanted].map((e) => e.outerHTML.slice(0, 80))") == []
    assert page.run("window.blind") == []


def test_one_goes_on_by_keyboard_alone(page: Page, world: World) -> None:
    show(page, world.url, "workflows")
    page.press("Tab", 5)
    assert page.run("document.activeElement.textContent") == "Network"
    page.press("Enter")
    page.wait("document.querySelector('h1').textContent === 'Network'")
    assert page.run("document.activeElement.id") == "main"
    assert page.run("document.title") == "Network – ADON"


# -- who asks ------------------------------------------------------------------------------------


# Of ada's workflow, at a site whose figures on the whole she may not be shown.
OWN = measured("runtime", "align@tacc", 4.0, time.time(), "dagman", WORKFLOW)


@pytest.fixture
def institution() -> Iterator[Provider]:
    with provider() as made:
        yield made


@pytest.fixture
def guarded(tmp_path: Path, request: pytest.FixtureRequest, institution: Provider) -> Iterator[str]:
    """A broker that knows its callers by token or login; its parameter is the section
    ``monitoring``."""
    keys = [{"name": "ada", "role": "researcher", "token": TOKEN}]
    security = {"tokens": keys, "issuers": [issuer(institution)]}
    config = QUIET | {"security": security, "monitoring": getattr(request, "param", {})}
    with (
        broker_process(tmp_path, config) as url,
        Archive(tmp_path / "archive.sqlite") as archive,
    ):
        archive.record_many([*everything(), OWN])
        yield url


def test_a_token_or_a_login_is_asked_for_and_kept_in_the_tab(
    page: Page, guarded: str, institution: Provider
) -> None:
    page.go(f"{guarded}/dashboard/#/network")
    page.wait("document.getElementById('ask').open && document.activeElement.id === 'token'")
    page.type("not-a-token")
    page.press("Enter")
    page.wait("document.getElementById('ask-why').textContent.includes('not known')")
    page.type(TOKEN)
    page.press("Enter")
    page.wait("document.querySelector('main table')")
    assert not page.run("document.getElementById('ask').open")
    page.go(f"{guarded}/dashboard/#/pool")
    page.wait("document.querySelector('main figure .series')")
    assert page.run("Object.keys(localStorage).length") == 0
    assert page.run("document.cookie") == ""
    assert all(TOKEN not in url for url in page.requests)
    page.click("#key")
    page.press("Escape")
    assert not page.run("document.getElementById('ask').open")
    page.click("#key")
    page.click("#forget")  # nobody is known any more
    page.wait("document.getElementById('ask').open")
    institution.refuses = "access_denied"
    page.click("#logins button")
    page.wait("document.getElementById('ask-why')?.textContent.includes('access_denied')")
    institution.refuses = ""
    page.click("#logins button")
    page.wait("document.getElementById('who')?.textContent === 'ada, researcher'")
    page.wait("document.querySelector('main figure .series')")  # where the login began
    assert page.run("location.href") == f"{guarded}/dashboard/#/pool"
    assert page.run("Object.keys(sessionStorage)") == ["adon-token"]


ONE_SITE = {"access": [{"who": ["researcher"], "may": ["see"], "sites": ["mu"]}]}


@pytest.mark.long
@pytest.mark.parametrize("guarded", [ONE_SITE], indirect=True)
def test_who_may_see_one_site_is_shown_it(page: Page, guarded: str) -> None:
    page.go(f"{guarded}/dashboard/#/pool")
    page.wait("document.activeElement.id === 'token'")
    page.type(TOKEN)
    page.press("Enter")
    page.wait("document.querySelectorAll('figure .series').length >= 3")
    assert page.run("document.querySelector('[name=site]').value") == "mu"
    text = page.text()
    assert text.startswith("Pool\nat mu") and "tacc" not in text and "–, –" not in text
    page.go(f"{guarded}/dashboard/#/workflows")
    page.wait("document.querySelector('main tbody')")
    assert "montage-m17" not in page.text()  # another's
    page.go(f"{guarded}/dashboard/#/measurements?metric=runtime&subject=align%40tacc")
    page.wait("document.querySelector('main').innerText.includes('measured\\n1\\n')")
