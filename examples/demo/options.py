"""What a run of the demo was asked to do, as one argument that passes into the box."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """``network_note`` says in a sentence why the network is simulated; empty where it is real.
    ``started`` is the monotonic clock's reading when the demo began, the same in the box.
    """

    samples: int
    chromosomes: int
    seed: int
    state: Path
    report: Path
    network_note: str
    condor: Path
    gridftp: Path
    bio: Path
    openvswitch: Path | None
    started: float

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({k: _plain(v) for k, v in asdict(self).items()})

    @classmethod
    def from_json(cls, text: str) -> DemoOptions:
        """The inverse of :meth:`to_json`."""
        data: dict[str, Any] = json.loads(text)
        for key in ("state", "report", "condor", "gridftp", "bio", "openvswitch"):
            if data[key] is not None:
                data[key] = Path(data[key])
        return cls(**data)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
