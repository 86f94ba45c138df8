"""Puzzles, the small problems that the adversary finds, as JSON: kept, they become tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from site_selector.evaluation.adversary import Edge, Found, Puzzle
from site_selector.evaluation.contenders import BUILT_IN
from site_selector.evaluation.platform import Platform

FORMAT = "adon-site-puzzles/1"


def as_dict(found: Sequence[Found], seed: int, steps: int, staging: str) -> dict[str, Any]:
    """What searches found, JSON-ready."""
    return {
        "format": FORMAT,
        "seed": seed,
        "steps": steps,
        "staging": staging,
        "found": [
            {"ratio": one.ratio, "makespan_s": one.makespan_s, "puzzle": asdict(one.puzzle)}
            for one in found
        ],
    }


def puzzle_of(data: dict[str, Any]) -> Puzzle:
    """A puzzle from what :func:`as_dict` made of it (and JSON made lists of)."""
    at = data["platform"]
    platform = Platform(
        tuple(at["sites"]),
        tuple(at["workers"]),
        tuple(at["speed"]),
        tuple(at["queue_s"]),
        tuple(tuple(row) for row in at["link_bps"]),
        at["store"],
    )
    edges = tuple(Edge(**edge) for edge in data["edges"])
    return Puzzle(tuple(data["runtime_s"]), tuple(data["result_bytes"]), edges, platform)


def rival(found: Found) -> tuple[str, float]:
    """The built-in that was best, and its makespan in seconds."""
    name = min(BUILT_IN, key=lambda who: (found.makespan_s[who], who))
    return name, found.makespan_s[name]
