"""``adon archive``: look into an archive, export it, keep it small."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from network_world import star
from pyarrow import parquet

from adon.cli.main import main
from monitors.archive.archive import Archive, Measurement
from monitors.archive.export import csv_parts
from monitors.archive.retention.horizons import DAY_S

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    now = time.time()
    with Archive("adon-archive.sqlite") as archive:
        archive.record_many(
            Measurement(
                f"t{n}", "throughput", "mu>tacc", 1e8 + n * 1e6, "bit/s", now - n * 3600.0,
                "transfer", "w1" if n % 2 else "", {"bytes": n},
            )
            for n in range(100)
        )  # fmt: skip
        archive.record(Measurement("s", "status", "w1", 100.0, "%", 1e9, "dagman", "w1"))
    return tmp_path


@pytest.fixture
def run(place: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def called(*args: str) -> tuple[int, str, str]:
        code = main(["archive", *args])
        out, err = capsys.readouterr()
        return code, out, err

    return called


def config(folder: Path, retention: dict[str, Any], archive: str = "adon-archive.sqlite") -> None:
    settings = {
        "topology": star("mu", "tacc"),
        "controller": {"driver": "simulated"},
        "broker": {"archive": archive},
        "monitoring": {"retention": retention},
    }
    (folder / "adon.yml").write_text(json.dumps(settings), encoding="utf-8")


def test_show(run: Run) -> None:
    code, out, _ = run("show")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[1][:5] == ["status", "1", "1", "2001-09-09", "01:46:40"]
    assert rows[2][:3] == ["throughput", "1", "100"]
    metrics = json.loads(run("show", "--json")[1])["metrics"]
    assert [(metric["metric"], metric["count"], metric["whole_since"]) for metric in metrics] == [
        ("status", 1, None), ("throughput", 100, None)
    ]  # fmt: skip


@pytest.mark.parametrize("at", [1e15, 1e300, -1e300])
def test_a_time_that_no_calendar_has_is_shown_as_it_is(run: Run, at: float) -> None:
    with Archive("adon-archive.sqlite") as archive:  # as somebody's program may send it
        archive.record(Measurement("odd", "rtt", "mu>tacc", 0.05, "s", at, "x"))
    for words in (("show",), ("query", "rtt")):
        code, out, _ = run(*words)
        assert code == 0 and f"{at:g}" in out


def test_what_others_wrote_is_escaped(run: Run) -> None:
    with Archive("adon-archive.sqlite") as archive:
        archive.record(Measurement("odd", "rtt", "a>b", 0.05, "s", 1.0, "\x9b2J\u202e"))
    for words in (("query", "rtt"), ("query", "rtt", "--json"), ("estimate", "rtt", "a\x9b2J")):
        out = run(*words)[1]
        assert "9b2J" in out and "\x9b" not in out and "\u202e" not in out


def test_query(run: Run) -> None:
    measurements = [
        json.loads(line) for line in run("query", "throughput", "--json")[1].splitlines()
    ]
    assert [m["id"] for m in measurements] == [f"t{n}" for n in range(100)]
    assert measurements[3]["details"] == {"bytes": 3}
    code, out, _ = run("query", "throughput,status", "--since", "90 min", "--limit", "5")
    assert code == 0 and [line.split()[-1] for line in out.splitlines()[1:]] == ["transfer"] * 2
    assert run("query", "rtt")[1] == "nothing was measured\n"
    assert "w1" in run("query", "status", "--until", "2002-01-01", "--workflow", "w1")[1]


def test_estimate(run: Run) -> None:
    code, out, _ = run("estimate", "gamma_a", "mu>tacc")
    assert code == 0 and out.startswith("1.07e+08 bit/s ± ")
    assert "from 100 of throughput of mu>tacc" in out
    estimate = json.loads(run("estimate", "throughput", "mu>tacc", "--at", "50 h", "--json")[1])
    assert estimate["count"] == 50
    assert run("estimate", "gamma_c", "t@mu")[:2] == (1, "no estimate of gamma_c for t@mu\n")
    assert run("estimate", "t_q", "mu")[0] == 1
    assert run("estimate", "throughput", "mu>tacc", "--at", "0")[0] == 1  # a moment as any other
    for what, subject in (("gamma_a", "mu"), ("gamma_c", "t")):
        code, _, err = run("estimate", what, subject)
        assert code == 2 and "SUBJECT: found" in err


def test_rollups(run: Run) -> None:
    code, out, _ = run("rollups", "throughput", "mu>tacc", "--resolution", "hour", "--since", "3 h")
    assert code == 0 and len(out.splitlines()) in (4, 5)
    days = json.loads(run("rollups", "throughput", "mu>tacc", "--json")[1])["rollups"]
    assert sum(day["count"] for day in days) == 100
    assert json.loads(run("rollups", "throughput", "mu>tacc", "--until", "0", "--json")[1]) == {
        "rollups": []
    }


def test_what_is_printed_as_a_time_is_taken_as_one(run: Run) -> None:
    newest = json.loads(run("estimate", "throughput", "mu>tacc", "--json")[1])["at"]
    estimate = json.loads(
        run("estimate", "throughput", "mu>tacc", "--at", str(newest), "--json")[1]
    )
    assert (estimate["at"], estimate["count"]) == (newest, 100)
    since = run("query", "throughput", "--since", str(newest), "--json")[1]
    assert [json.loads(line)["at"] for line in since.splitlines()] == [newest]


def test_export(place: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["archive", "export", "throughput", "--since", "90 min"]) == 0
    text = capfdbinary.readouterr().out.decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["id"] for row in rows] == ["t1", "t0"]
    assert main(["archive", "export", "-o", "all.parquet"]) == 0
    assert b"101 measurements" in capfdbinary.readouterr().out
    table = parquet.read_table(place / "all.parquet")
    assert table.num_rows == 101
    assert main(["archive", "export", "-o", "x.csv", "--subject", "w1"]) == 0
    assert len((place / "x.csv").read_text("utf-8").splitlines()) == 2
    assert sorted(path.name for path in place.iterdir() if path.name.startswith(".")) == []


def test_no_cell_is_a_formula() -> None:
    measurements = [
        Measurement(f"{sign}1+1", "rtt", "-2", -0.5, "s", 1.0, "@x", "plain", {"=": 1})
        for sign in ("=", "+", "-", "@", "\t", "\r")
    ]
    rows = list(csv.DictReader(io.StringIO("".join(csv_parts(measurements)), newline="")))
    assert [row["id"][0] for row in rows] == ["'"] * 6
    assert {(row["subject"], row["source"], row["workflow"]) for row in rows} == {
        ("'-2", "'@x", "plain")
    }
    assert {row["value"] for row in rows} == {"-0.5"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("export", "-o", "all.txt"), "found the ending 'txt', expected .csv or .parquet"),
        (("export", "-o", "none/all.csv"), "cannot be written"),
        (("query", "x", "--archive", "none.sqlite"), "found no such file, expected an archive"),
        (("query", "x", "--archive", "http://x"), "expected postgresql://"),
        (("query", "x", "--since", "soon"), "--since"),
        (("query", "\udcff"), "found '\\udcff', which is no text, expected a name"),
    ],
)
def test_what_cannot_be_done_is_one_line(run: Run, args: tuple[str, ...], message: str) -> None:
    code, _, err = run(*args)
    assert code == 2
    assert message in err and len(err.splitlines()) == 1


def test_parquet_without_pyarrow_says_how_to_get_it(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    code, _, err = run("export", "-o", "all.parquet")
    assert code != 0 and "pip install 'adon-wms[parquet]'" in err
    assert not (place / "all.parquet").exists()


def test_retain(run: Run, place: Path) -> None:
    config(place, {})
    code, out, _ = run("retain", "--config", "adon.yml", "--dry-run")
    assert (code, out) == (0, "adon.yml has no monitoring.retention: everything is kept\n")
    config(place, {"default": {"raw": "50 h"}, "status": {"raw": "1 d"}})
    code, out, _ = run("retain", "--config", "adon.yml", "--dry-run")
    assert code == 0 and "nothing was changed" in out
    code, out, _ = run("retain", "--config", "adon.yml")
    assert code == 0 and out.startswith("removed ")
    with Archive("adon-archive.sqlite", read_only=True) as archive:
        assert 48 <= len(archive.query("throughput")) <= 52
        assert [m.id for m in archive.query("status")] == ["s"]
        assert not archive.query("throughput", until=time.time() - 3 * DAY_S)
    assert "WHOLE SINCE" in run("show")[1]


def test_retention_that_cannot_be_meant_is_told(run: Run, place: Path) -> None:
    config(place, {"default": {"raw": "1 min"}})
    code, _, err = run("retain", "--config", "adon.yml")
    assert code == 2 and "monitoring.retention.default.raw: found '1 min'" in err


def test_copy(run: Run, place: Path) -> None:
    config(place, {"default": {"raw": "50 h"}})
    run("retain", "--config", "adon.yml")
    whole = run("rollups", "throughput", "mu>tacc", "--json")[1]
    code, out, _ = run("copy", "adon-archive.sqlite", "other.sqlite")
    assert code == 0 and out.startswith("copied ")
    copied = run("rollups", "throughput", "mu>tacc", "--json", "--archive", "other.sqlite")[1]
    assert copied == whole
    with Archive("other.sqlite") as archive:  # what was given up stays given up
        old = Measurement("t99", "throughput", "mu>tacc", 1.0, "bit/s", time.time() - 99 * 3600, "")
        assert not archive.record(old)
    code, _, err = run("copy", "adon-archive.sqlite", "other.sqlite")
    assert code == 2 and "expected an empty archive" in err
    with sqlite3.connect("other.sqlite") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
