"""examples/soykb/figure18.py in the simulated network: the thesis's sequence, t1 to t6."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "soykb" / "figure18.py"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("figure18")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--simulated", "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_the_drawing_is_one(example: tuple[Path, str]) -> None:
    html = (example[0] / "figure18.html").read_text()
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', html)
    assert match is not None and html.count('data-draw="chart"') == 2
    overlay, routed = json.loads(match[1])["chart"]
    free = "can still be reserved"
    assert [line["name"] for line in overlay["series"]] == [free, "t1", "t3", "t6"]
    assert [line["name"] for line in routed["series"]] == [free, "t4"]
    assert [band["words"] for band in overlay["bands"]] == ["t6 waits"]
    for path in (overlay, routed):
        assert [mark["letter"] for mark in path["marks"]] == ["t1", "t2", "t3", "t4", "t6"]
        assert all(line["points"] for line in path["series"])
