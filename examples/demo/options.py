"""What a run of the demo was asked to do, as one argument that passes into the box."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """``settings``: the example's own options and ``seed``; ``network``: one of its comparison's.
    ``selector``: the site selector of Pegasus's that maps in place of ADON; ``draw`` is the seed of
    its dice. ``hooks``: whether transfers ask for paths. ``most_s``: when the run is stopped (0:
    never). ``programs``: where each set of packages is. ``network_note`` says in a sentence why the
    network is simulated; empty where it is real. ``started`` is the monotonic clock's reading when
    the demo began, the same in the box.
    """

    example: str
    settings: Mapping[str, int]
    state: Path
    report: Path
    programs: Mapping[str, Path]
    network_note: str
    started: float
    selector: str = ""
    hooks: bool = True
    draw: int = 0
    most_s: float = 0.0
    network: str = ""

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> DemoOptions:
        """The inverse of :meth:`to_json`."""
        data: dict[str, Any] = json.loads(text)
        data["programs"] = {name: Path(folder) for name, folder in data["programs"].items()}
        return cls(**data | {name: Path(data[name]) for name in ("state", "report")})
