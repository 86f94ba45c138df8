"""``python -m tests.bench.tables [--check]``: docs/benchmarks.md has its tables from docs/results.

The tables of an id stand between ``<!-- P7 -->`` and ``<!-- end -->``, and nobody types there. With
``--check`` nothing is written, and the exit status is 1 where the page differs.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.bench.results import FOLDER, ROOT, Run, load

PAGE = ROOT / "docs" / "benchmarks.md"
_TABLES = re.compile(r"(?ms)^(<!-- (P\d+) -->)\n.*?^<!-- end -->$")


def rendered(page: str, folder: Path = FOLDER) -> str:
    """The page with its tables from the results."""

    def tables(match: re.Match[str]) -> str:
        runs = load(match[2], folder).values()
        return "\n".join([match[1], *lines(list(runs)), "<!-- end -->"])

    return _TABLES.sub(tables, page)


def lines(runs: Sequence[Run]) -> Iterator[str]:
    """Runs as tables in Markdown; below those that were measured together, where and when."""
    for source, together in groupby(runs, _source):
        loads: list[float] = []
        inputs = ""
        for run in together:
            for header, rows in _tables(run):
                yield from _grid(header, rows)
                yield ""
            loads += run.get("load", [])
            read = run.get("inputs", {})
            named = ", ".join(f"{name} `{digest}`" for name, digest in read.items())
            inputs += "" if not read else f", {named if len(read) < 3 else f'{len(read)} inputs'}"
        busy = f", load {min(loads):g} to {max(loads):g}" if loads else ""
        yield f"*{source}{busy}{inputs}.*"
        yield ""


def _source(run: Run) -> str:
    """What runs have to have in common for one line below their tables."""
    if "typed" in run:
        return f"Typed from {run['typed']}"
    return f"{run['date']}, `{run['commit']}`, {run['machine']}"


Table = tuple[list[str], list[list[str]]]


def _tables(run: Run) -> Iterator[Table]:
    """One for all figures that have the same peers."""
    if "typed" in run:
        yield run["table"][0], run["table"][1:]
        return
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for figure in run["figures"]:
        alike.setdefault(tuple(figure.get("peers", {})), []).append(figure)
    for names, together in alike.items():
        pivoted = None if names else _pivoted(together)
        if pivoted is not None:
            yield pivoted
        else:
            goals = ["goal"] if any("goal" in figure for figure in together) else []
            header = ["", "ADON", *names, *goals]
            yield header, [_row(figure, bool(goals)) for figure in together]


def _row(figure: dict[str, Any], with_goal: bool) -> list[str]:
    unit = figure["unit"]
    cells = [figure["figure"], _value(figure["value"], unit)]
    cells += [_value(value, unit) for value in figure.get("peers", {}).values()]
    if not with_goal:
        return cells
    goal = _goal(figure) if "goal" in figure else ""
    return [*cells, f"{goal}, **missed**" if _missed(figure) else goal]


def _pivoted(figures: Sequence[dict[str, Any]]) -> Table | None:
    """Figures named ``ROW: COLUMN``, several of a row, as a grid; None if they are not such."""
    cells: dict[str, dict[str, dict[str, Any]]] = {}
    for figure in figures:
        row, colon, column = figure["figure"].rpartition(": ")
        if not colon:
            return None
        cells.setdefault(row, {})[column] = figure
    if len(cells) == len(figures):
        return None
    columns: dict[str, dict[str, Any]] = {}
    for name, figure in (item for row in cells.values() for item in row.items()):
        if "goal" in figure or name not in columns:
            columns[name] = figure
    header = [""]
    for name, figure in columns.items():
        goal = f" ({_goal(figure)})" if "goal" in figure else f", {figure['unit']}"
        header.append(name + goal)
    return header, [[row, *_cells(values, columns)] for row, values in cells.items()]


def _cells(values: dict[str, dict[str, Any]], columns: Iterable[str]) -> Iterator[str]:
    for column in columns:
        figure = values.get(column)
        text = "–" if figure is None else _number(figure["value"])
        yield f"{text}, **missed**" if figure is not None and _missed(figure) else text


def _missed(figure: dict[str, Any]) -> bool:
    if "goal" not in figure:
        return False
    value, goal = figure["value"], figure["goal"]
    return bool(value < goal if figure["better"] == "higher" else value > goal)


def _goal(figure: dict[str, Any]) -> str:
    sign = "≥" if figure["better"] == "higher" else "≤"
    return f"{sign} {_value(figure['goal'], figure['unit'])}"


def _value(value: float, unit: str) -> str:
    """With its unit; a share in percent, a ratio alone."""
    if unit == "share":
        return f"{_number(100 * value)} %"
    return f"{_number(value)} {unit}".rstrip() if unit != "ratio" else _number(value)


def _number(value: float) -> str:
    """Three digits, no exponent; four where 1 is the measure (1.004)."""
    if math.isnan(value):
        return "–"
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    if 0.9 < abs(value) < 1.1:
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = f"{float(f'{value:.3g}'):.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |".replace("|  |", "| |", 1)
    yield "|---" * len(header) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def main(arguments: Sequence[str]) -> int:
    """Exit status 1 where ``--check`` finds a difference."""
    page = PAGE.read_text(encoding="utf-8")
    wanted = rendered(page)
    if page == wanted:
        return 0
    if "--check" in arguments:
        print(f"{PAGE.relative_to(ROOT)}: tables differ from docs/results; run make docs")
        return 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
