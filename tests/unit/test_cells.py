"""Cells that no spreadsheet runs."""

from __future__ import annotations

import pytest

from network_provisioner.base.csv_cells import csv_cell


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@x",
        "\t=1",
        "\r=1",
        "\n=1",
        " =1",
        "\uff1d1",
        "\uff0b1",
        "\uff0d1",
        "\uff20x",
    ],
)
def test_no_cell_is_a_formula(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", [-1, -1.5, None, "a=b", "w:job-1", "", "a; b"])
def test_what_is_none_stays(value: object) -> None:
    assert csv_cell(value) == value
