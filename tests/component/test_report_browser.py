"""The report in a real browser: Debian's Chromium, headless."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import pytest
from browser import chromium, draw
from report_world import facts, large, taught

from examples.demo.page import render

pytestmark = pytest.mark.component


@pytest.fixture(scope="module", autouse=True)
def fetched() -> None:
    """What cannot be fetched is tried once, not in every test."""
    chromium()


def browse(page: str, folder: Path, *words: str) -> str:
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    return draw(folder, file.as_uri(), *words)


def pixels(png: Path) -> tuple[int, int, list[bytes]]:
    """Width, height, and the rows of an 8-bit RGB or RGBA PNG, each pixel as it is stored."""
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, packed, head = 8, b"", b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        head = body if kind == b"IHDR" else head
        packed += body if kind == b"IDAT" else b""
        at += length + 12
    width, height, depth, colour = struct.unpack(">IIBB", head[:10])
    assert depth == 8 and colour in (2, 6)
    raw, step = zlib.decompress(packed), 1 + width * (3 if colour == 2 else 4)
    return width, height, [raw[n * step : (n + 1) * step] for n in range(height)]


def ink(png: Path) -> float:
    """The share of rows on which something is drawn. PNG filters leave an even row all zero but
    for its first pixels, whatever its colour."""
    _, height, rows = pixels(png)
    return sum(len(set(row[8:])) > 1 for row in rows) / height


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 600])
def test_it_is_drawn(tmp_path: Path, width: int, scheme: str) -> None:
    page = render(facts(taught=taught(), earlier_measurements=7))
    shot = tmp_path / "shot.png"
    settings = f"--blink-settings=preferredColorScheme={'01'[scheme == 'light']}"
    browse(page, tmp_path, settings, f"--window-size={width},1600", f"--screenshot={shot}")
    found = pixels(shot)
    assert found[:2] == (width, 1600)
    paper = found[2][0][1:4]  # of the first pixel all filters leave the plain colour
    assert paper == (b"\xff\xff\xff" if scheme == "light" else b"\x14\x17\x1b")
    assert ink(shot) > 0.3


def test_an_empty_page_has_no_ink(tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    browse("<!DOCTYPE html><title>x</title>", tmp_path, f"--screenshot={shot}")
    assert ink(shot) == 0


@pytest.mark.parametrize("size", ["small", "large"])
def test_the_browser_takes_the_whole_page(tmp_path: Path, size: str) -> None:
    page = render(facts() if size == "small" else large())
    dom = browse(page, tmp_path, "--dump-dom")
    # A browser repairs what is malformed: what it repaired would be counted differently.
    for tag in ("<svg", "<rect", "<section", "<table", "<tbody", "<tr", "<td", "<details", "<dd"):
        assert dom.count(tag) == page.count(tag), tag


def test_nothing_is_wider_than_a_phone(tmp_path: Path) -> None:
    """Wide drawings and tables scroll by themselves, the page does not."""
    page = render(facts(taught=taught(), earlier_measurements=7))
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    frame = (
        '<!DOCTYPE html><iframe id="f" src="page.html" style="width:390px;height:800px"></iframe>'
        "<script>f.onload = () => { document.title ="
        " f.contentDocument.documentElement.scrollWidth }</script>"
    )
    # Pages of files may not look into each other unless told that they may.
    dom = browse(frame, tmp_path, "--allow-file-access-from-files", "--dump-dom")
    assert "<title>390</title>" in dom


def printed_pages(page: str, folder: Path) -> int:
    paper = folder / "report.pdf"
    browse(page, folder, "--no-pdf-header-footer", f"--print-to-pdf={paper}")
    return len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes()))


def test_it_prints_with_everything_unfolded(tmp_path: Path) -> None:
    page = render(facts(taught=taught(40, 40), earlier_measurements=7))
    folded = printed_pages(page, tmp_path)
    assert folded == printed_pages(page.replace("<details>", "<details open>"), tmp_path)
    without = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    assert folded > printed_pages(without, tmp_path) > 0
