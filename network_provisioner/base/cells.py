"""Cells of the tables that others open."""

from __future__ import annotations


def csv_cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula and runs; numbers stay numbers."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
