"""A decision file, ``<dir>/<job>.adon.json``: what PRE asked for, what it got, what POST did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import DECISION_ENDING
from network_provisioner.base.model import SEEN
from network_provisioner.client.path_requests import UNASKED, RequestOutcome

WHOSE = ("user", "project", "experiment", "application")
_KINDS: dict[str, type | tuple[type, ...]] = {
    "id": str, "src": str, "dst": str, "state": str, "reason": str, "size_bytes": int,
    "told": bool, "files": int, "size_source": str, "granted_bps": (int, float), "layer": str,
    "waited_s": (int, float), "client": str, "far": str,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """What became of the request for one pair of sites. Rates in bits per second, times in seconds.

    ``reason`` says why it has no path, ``told`` whether the broker knows that; ``size_source`` is
    where the size is from. ``client`` is the end, ``src`` or ``dst``, whose machine moves the files
    and opens the connections; empty where they are not to be reported. ``far`` is the address at
    the other end, empty where nobody knows.
    """

    id: str
    src: str
    dst: str
    state: str = UNASKED
    reason: str = ""
    size_bytes: int | None = None
    told: bool = False
    files: int = 0
    size_source: str = ""
    granted_bps: float = 0.0
    layer: str = ""
    path: tuple[str, ...] = ()
    waited_s: float = 0.0
    client: str = ""
    far: str = ""

    @classmethod
    def of(cls, data: object) -> Pair | None:
        """As it stands in a decision file; None for what is none."""
        if not isinstance(data, dict) or not isinstance(data.get("id"), str):
            return None
        fields = {k: data[k] for k, kind in _KINDS.items() if isinstance(data.get(k), kind)}
        path = data.get("path")
        names = tuple(filter(None, map(_text, path))) if isinstance(path, list) else ()
        return cls(**{"src": "", "dst": "", **fields, "path": names})

    def answered(self, answer: RequestOutcome) -> Pair:
        """The same, with what the broker answered."""
        transit = answer.transit
        seen = transit if transit and transit.request.ports_at == SEEN else None
        return replace(
            self,
            id=answer.id,
            state=answer.state,
            granted_bps=transit.grant.granted_bps if transit else 0.0,
            layer=transit.grant.layer if transit else "",
            path=tuple(transit.grant.path) if transit else (),
            reason=answer.reason,
            waited_s=answer.waited_s,
            told=answer.told,
            client=self.client if seen else "",
            far=seen.request.hosts[self.client == "src"] if seen and seen.request.hosts else "",
        )

    def as_json(self) -> dict[str, Any]:
        """As it stands in the decision file and the journal."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "path": list(self.path)}


@dataclass(frozen=True, slots=True)
class DecisionFile:
    """One decision file; ``left_over`` are ids of an earlier PRE that could not be given back,
    ``whose`` what a request says of whose transfers these are."""

    file: Path
    job: str
    retry: int
    at: float
    pairs: tuple[Pair, ...] = ()
    given_back: bool = False
    left_over: tuple[str, ...] = ()
    whose: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> DecisionFile:
        """The file as it is now. What is missing or of the wrong kind counts for nothing."""
        return cls.of(file, job_files.read_json(file))

    @classmethod
    def of(cls, file: Path, data: Mapping[str, Any]) -> DecisionFile:
        """The same from what stands in it."""
        retry, at, pairs = data.get("retry"), data.get("at"), data.get("pairs")
        left, whose = data.get("left_over"), data.get("whose")
        return cls(
            file=file,
            job=file.name.removesuffix(DECISION_ENDING),
            retry=retry if isinstance(retry, int) else 0,
            at=float(at) if isinstance(at, int | float) else 0.0,
            pairs=tuple(filter(None, map(Pair.of, pairs))) if isinstance(pairs, list) else (),
            given_back=data.get("given_back") is True,
            left_over=tuple(filter(None, map(_text, left))) if isinstance(left, list) else (),
            whose={k: _text(whose.get(k)) for k in WHOSE} if isinstance(whose, dict) else {},
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """All that may have to be given back."""
        return tuple(pair.id for pair in self.pairs)

    def same_run(self, other: DecisionFile) -> bool:
        """Whether both are of one run of one PRE."""
        return (self.retry, self.at) == (other.retry, other.at)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
