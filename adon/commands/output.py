"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
from typing import Any


def print_json(data: Any) -> None:
    """Indented, with Greek letters as they are."""
    print(json.dumps(data, indent=2, ensure_ascii=False))


def duration(seconds: float) -> str:
    """Seconds for people: ``53 ms``, ``42 s``, ``15 min``, ``1 h 52 min``."""
    if 0 < seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
