"""What fails beside others is tried once more alone, and not more than that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import again

# Fails as often as the file says, then passes.
UNSTEADY = """
import pytest
from pathlib import Path

def fails(times):
    count = Path(__file__).with_name("count")
    before = int(count.read_text()) if count.exists() else 0
    count.write_text(str(before + 1))
    return before < times

@pytest.mark.parametrize("name", ["plain", "ü [b/c]::d"])
def test_unsteady(name):
    assert name == "plain" or not fails({times})

def test_passes():
    pass
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(again, "_ROOT", tmp_path)
    monkeypatch.setattr(again, "_CACHE", tmp_path / "cache")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tests").mkdir()
    return tmp_path / "tests"


@pytest.mark.parametrize(
    ("times", "code", "unsteady", "again_at_all"),
    [(0, 0, False, False), (1, 0, True, True), (2, 1, False, True)],
)
def test_a_failure_is_tried_again_once(
    place: Path,
    capfd: pytest.CaptureFixture[str],
    times: int,
    code: int,
    unsteady: bool,
    again_at_all: bool,
) -> None:
    (place / "test_it.py").write_text(UNSTEADY.replace("{times}", str(times)))
    assert again.main(["-q", "tests"]) == code
    said = capfd.readouterr().out
    assert ("tried again alone" in said) is again_at_all
    assert ("tests: unsteady" in said) is unsteady
    assert (place / "count").read_text() == str(min(times, 1) + 1)
    if again_at_all:
        assert "collected 1 item" in said  # by the second run: only what failed


def test_many_failures_are_no_accident(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    failing = [f"def test_{n}(): assert False\n" for n in range(again.MOST + 1)]
    (place / "test_it.py").write_text("".join(failing))
    assert again.main(["-q", "tests"]) == 1
    assert "again" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("text", "code"), [("import nothing_of_this_name\n", 2), ("raise KeyboardInterrupt\n", 2)]
)
def test_what_cannot_be_collected_is_not_tried_again(
    place: Path, capfd: pytest.CaptureFixture[str], text: str, code: int
) -> None:
    (place / "test_it.py").write_text(text)
    assert again.main(["-q", "tests"]) == code
    assert "again" not in capfd.readouterr().out


def test_an_earlier_run_is_not_looked_at(place: Path) -> None:
    (place / "test_it.py").write_text("def test_it(): assert False\n")
    assert again.main(["-q", "tests"]) == 1
    (place / "test_it.py").write_text("def test_it(): pass\n")
    assert again.main(["-q", "tests"]) == 0
