"""A decision file, ``<dir>/<job>.adon.json``: what PRE asked for, what it got, what POST did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monitors.planned import submitdir
from monitors.planned.submitdir import DECISION_ENDING


@dataclass(frozen=True, slots=True)
class Pair:
    """The request for one pair of sites; ``reason`` says why it has no path, ``told`` whether the
    broker knows that."""

    id: str
    src: str
    dst: str
    state: str
    reason: str = ""
    size_bytes: int | None = None
    told: bool = False


@dataclass(frozen=True, slots=True)
class DecisionFile:
    """One decision file; ``left_over`` are ids of an earlier PRE that could not be given back."""

    file: Path
    job: str
    retry: int
    at: float
    pairs: tuple[Pair, ...] = ()
    given_back: bool = False
    left_over: tuple[str, ...] = ()

    @classmethod
    def read(cls, file: Path) -> DecisionFile:
        """The file as it is now. What is missing or of the wrong kind counts for nothing."""
        return cls.of(file, submitdir.read_json(file))

    @classmethod
    def of(cls, file: Path, data: Mapping[str, Any]) -> DecisionFile:
        """The same from what stands in it."""
        retry, at, pairs = data.get("retry"), data.get("at"), data.get("pairs")
        left = data.get("left_over")
        return cls(
            file=file,
            job=file.name.removesuffix(DECISION_ENDING),
            retry=retry if isinstance(retry, int) else 0,
            at=float(at) if isinstance(at, int | float) else 0.0,
            pairs=tuple(filter(None, map(_pair, pairs))) if isinstance(pairs, list) else (),
            given_back=data.get("given_back") is True,
            left_over=tuple(filter(None, map(_text, left))) if isinstance(left, list) else (),
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """All that may have to be given back."""
        return tuple(pair.id for pair in self.pairs)

    def same_run(self, other: DecisionFile) -> bool:
        """Whether both are of one run of one PRE."""
        return (self.retry, self.at) == (other.retry, other.at)


def _pair(data: object) -> Pair | None:
    if not isinstance(data, dict) or not isinstance(data.get("id"), str):
        return None
    size = data.get("size_bytes")
    return Pair(
        id=data["id"],
        src=_text(data.get("src")),
        dst=_text(data.get("dst")),
        state=_text(data.get("state")),
        reason=_text(data.get("reason")),
        size_bytes=size if isinstance(size, int) else None,
        told=data.get("told") is True,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
