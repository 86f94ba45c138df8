"""An archive that is copied while retention is at work: the copy has everything, once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from monitors.archive.archive import Archive, Measurement
from monitors.archive.export import copy_archive
from monitors.archive.retaining import retain_metric
from monitors.archive.retention.horizons import HOUR_S, Keep
from monitors.base.measurement import from_row

COUNT = 600
KEEP, NOW = Keep(raw_s=HOUR_S), 60 * HOUR_S


@pytest.mark.parametrize("done", [0, 3, 12])
def test_nothing_is_lost_whatever_retention_has_done(
    tmp_path: Path, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Archive(tmp_path / "a.sqlite") as source,
        Archive(tmp_path / "a.sqlite") as retained,
        Archive(tmp_path / "b.sqlite") as target,
    ):
        source.record_many(
            Measurement(f"m{n}", "rtt", f"s{n % 15}", 1.0 + n % 7, "s", n * 240.0, "x")
            for n in range(COUNT)
        )
        work = retain_metric(retained.engine, "rtt", KEEP, NOW)
        for _ in range(done):
            next(work)

        engine = source.engine

        class Busy:
            """Retention comes to its end as soon as anybody has asked for roll-ups or horizons."""

            def rows(self, statement: str, values: Sequence[object] = ()) -> Any:
                result = engine.rows(statement, values)
                if "rollup" in statement or "horizon" in statement:
                    for _ in work:
                        pass
                return result

            def __getattr__(self, name: str) -> Any:
                return getattr(engine, name)

        monkeypatch.setattr(source, "_engine", Busy())
        copy_archive(source, target)
        monkeypatch.undo()
        for archive in (source, target):
            for _ in retain_metric(archive.engine, "rtt", KEEP, NOW):
                pass
            rolled = archive.engine.rows("SELECT sum(number) FROM rollup")[0][0]
            assert rolled == COUNT


@pytest.mark.parametrize(
    ("details", "known"),
    [
        ("", {}),
        ('{"t": NaN, "x": [-Infinity]}', {"t": None, "x": [None]}),
        (r'{"half": "\ud800"}', {"half": "\ud800"}),
        ('{"deep": ' + "[" * 300 + "]" * 300 + "}", None),
        (
            '{"a": 1, "a": -0.0, "n": 123456789012345678901}',
            {"a": -0.0, "n": 123456789012345678901},
        ),
    ],
)
def test_what_the_quick_decoder_refuses_is_read_all_the_same(
    details: str, known: dict[str, Any] | None
) -> None:
    read = from_row(("m", "rtt", "s", 1.0, "s", 0.0, "x", "", details)).details
    assert read == (json.loads(details) if known is None else known)
