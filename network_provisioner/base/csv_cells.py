"""Cells of the tables that others open."""

from __future__ import annotations

import re

_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")  # the last four: full width


def csv_cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula and runs; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value
