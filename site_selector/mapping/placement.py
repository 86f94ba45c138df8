"""The result of site selection as values and as JSON.

Infinite times (a site without resources) are ``null`` in JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr as shown
from typing import Any

from monitors.workflows.facts.plan import FILE
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import transfer_time
from site_selector.wholefile import write_whole

_TERMS = ("t_q_s", "t_c_s", "t_n_s", "t_t_s")


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes of one job that must move from one place to another. Rates in bits per second."""

    path: str  # "src>dst"
    s_t_bytes: float
    gamma_a_bps: float
    gamma_t_bps: float

    @property
    def rate_bps(self) -> float:
        """min(Γ_t, Γ_a)."""
        return min(self.gamma_a_bps, self.gamma_t_bps)

    @property
    def seconds(self) -> float:
        """How long it takes alone."""
        return transfer_time(self.s_t_bytes, self.rate_bps)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; a rate without a bound is null."""
        return {
            "path": self.path,
            "s_t_bytes": self.s_t_bytes,
            "gamma_a_bps": finite(self.gamma_a_bps),
            "gamma_t_bps": finite(self.gamma_t_bps),
        }

    @classmethod
    def from_dict(cls, data: MappingType[str, Any]) -> Move:
        """The inverse of :meth:`as_dict`."""
        rates = _read(data["gamma_a_bps"]), _read(data["gamma_t_bps"])
        return cls(_text(data, "path"), _number(data["s_t_bytes"]), *rates)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A job's terms at one site that could run it. Seconds and bytes.

    ``t_c_s`` is S_c/(N·Γ_c) without T_q, so that the three terms add up to ``t_t_s``. ``gamma``
    says which of Γ_a and Γ_t bound, "" where nothing must move; ``path`` is "src>dst" of the move
    that takes longest, and ``moves`` has them all. ``inputs`` holds t_q, n, gamma_c, gamma_a,
    gamma_t, each with value, source and age_s.
    """

    site: str
    t_q_s: float
    t_c_s: float
    t_n_s: float
    t_t_s: float
    gamma: str = ""
    path: str = ""
    s_c_bytes: float = 0.0
    s_t_bytes: float = 0.0
    inputs: MappingType[str, MappingType[str, Any]] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        out: dict[str, Any] = {"site": self.site}
        for term in _TERMS:
            value = getattr(self, term)
            out[term] = value if math.isfinite(value) else None
        out["gamma"], out["path"] = self.gamma, self.path
        out["s_c_bytes"], out["s_t_bytes"] = self.s_c_bytes, self.s_t_bytes
        out["moves"] = [move.as_dict() for move in self.moves]
        out["inputs"] = {name: dict(value) for name, value in self.inputs.items()}
        return out

    @classmethod
    def from_dict(cls, data: MappingType[str, Any]) -> Alternative:
        """The inverse of :meth:`as_dict`."""
        return cls(
            _text(data, "site"),
            **{term: _read(data[term]) for term in _TERMS},
            gamma=_text(data, "gamma", ""),
            path=_text(data, "path", ""),
            s_c_bytes=_number(data.get("s_c_bytes", 0.0)),
            s_t_bytes=_number(data.get("s_t_bytes", 0.0)),
            inputs={name: _table(value) for name, value in data.get("inputs", {}).items()},
            moves=tuple(Move.from_dict(m) for m in data.get("moves", ())),
        )


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a job goes, why, and what it would cost elsewhere.

    ``start_s`` and ``end_s`` are when the model expects it to run, from the start of the workflow.
    """

    job: str
    transformation: str
    site: str
    reason: str = ""
    alternatives: tuple[Alternative, ...] = ()
    start_s: float = 0.0
    end_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "job": self.job,
            "transformation": self.transformation,
            "site": self.site,
            "reason": self.reason,
            "start_s": self.start_s,
            "end_s": self.end_s,
            "alternatives": [a.as_dict() for a in self.alternatives],
        }


@dataclass(frozen=True, slots=True)
class Withstands:
    """What was gained by not trusting the estimates.

    ``makespan_s`` is what the best mapping under the estimates would reach there. In ``better`` of
    ``drawn`` worlds drawn around the estimates the chosen mapping ends sooner than that one, in
    ``worse`` later; ``gain`` is the mean saving over them as a fraction (geometric).
    """

    makespan_s: float
    drawn: int
    better: int
    worse: int
    gain: float

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "makespan_s": finite(self.makespan_s),
            "drawn": self.drawn,
            "better": self.better,
            "worse": self.worse,
            "gain": self.gain,
        }

    @classmethod
    def from_dict(cls, data: MappingType[str, Any]) -> Withstands:
        """The inverse of :meth:`as_dict`."""
        drawn, better, worse = (int(_number(data[key])) for key in ("drawn", "better", "worse"))
        return cls(_read(data["makespan_s"]), drawn, better, worse, _number(data["gain"]))


@dataclass(frozen=True, slots=True)
class Mapping:
    """A whole workflow placed.

    ``portfolio`` holds the makespan in seconds that each policy would reach under the model,
    ``policy`` the one that won (with ``+search`` where moving jobs made it better still).
    ``withstands`` is None where the mapping is the best under the estimates.
    """

    workflow: str
    policy: str
    makespan_s: float
    portfolio: MappingType[str, float]
    placements: tuple[Placement, ...]
    beliefs: MappingType[str, Any]
    output_site: str | None = None
    seed: int = 0
    withstands: Withstands | None = None

    @property
    def sites(self) -> dict[str, str]:
        """Site by job id."""
        return {p.job: p.site for p in self.placements}

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "workflow": self.workflow,
            "policy": self.policy,
            "makespan_s": finite(self.makespan_s),
            "output_site": self.output_site,
            "seed": self.seed,
            "withstands": None if self.withstands is None else self.withstands.as_dict(),
            "portfolio": {name: finite(value) for name, value in self.portfolio.items()},
            "placements": [p.as_dict() for p in self.placements],
            "beliefs": dict(self.beliefs),
        }

    @classmethod
    def from_dict(cls, data: MappingType[str, Any]) -> Mapping:
        """The inverse of :meth:`as_dict`. Raises InputError where it is none."""
        try:
            placements = tuple(
                Placement(
                    _text(p, "job"),
                    _text(p, "transformation"),
                    _text(p, "site"),
                    _text(p, "reason", ""),
                    tuple(Alternative.from_dict(a) for a in p.get("alternatives", ())),
                    _number(p.get("start_s", 0.0)),
                    _number(p.get("end_s", 0.0)),
                )
                for p in data["placements"]
            )
            if len({p.job for p in placements}) < len(placements):
                raise ValueError("a job is placed twice")
            return cls(
                _text(data, "workflow"),
                _text(data, "policy"),
                _read(data["makespan_s"]),
                {name: _read(value) for name, value in data["portfolio"].items()},
                placements,
                _table(data.get("beliefs", {})),
                None if data.get("output_site") is None else _text(data, "output_site"),
                int(_number(data.get("seed", 0))),
                None
                if data.get("withstands") is None
                else Withstands.from_dict(_table(data["withstands"])),
            )
        except KeyError as error:
            problem = f"found no key {error}"
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            problem = str(error)
        raise InputError(f"no site mapping: {problem}, expected what 'adon site map' writes")

    def save(self, path: str | Path) -> None:
        """Write as JSON, all or nothing. Raises InputError where the file cannot be written."""
        text = self._json()
        write_whole(path, lambda stream: stream.write(text), "the mapping")

    def _json(self) -> str:
        """One line per key and per job: readable, and a tenth of the time of an indented dump."""
        data = self.as_dict()
        jobs = ",\n".join(json.dumps(p, allow_nan=False) for p in data.pop("placements"))
        head = ",\n".join(
            f"{json.dumps(k)}: {json.dumps(v, allow_nan=False)}" for k, v in data.items()
        )
        return f'{{{head},\n"placements": [\n{jobs}\n]}}\n'

    @classmethod
    def load(cls, path: str | Path) -> Mapping:
        """Read what :meth:`save` wrote. Raises InputError."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}, expected a site mapping") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not valid JSON: {error}, expected a site mapping") from None
        try:
            return cls.from_dict(data)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def finite(value: float) -> float | None:
    """The value, or None where it is infinite: JSON has no infinity."""
    return value if math.isfinite(value) else None


def _text(data: MappingType[str, Any], key: str, default: str | None = None) -> str:
    value = data[key] if default is None else data.get(key, default)
    if not isinstance(value, str):
        raise TypeError(f"{key} is a {type(value).__name__} and no text")
    value.encode()  # ValueError for half a character, which JSON can hold and nothing can print
    return value


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"found a {type(value).__name__} and no object")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"found {shown(value)} and no number")
    return float(value)


def _read(value: Any) -> float:
    return math.inf if value is None else _number(value)


def write_placements(submit_dir: Path, mapping: Mapping, at: float) -> None:
    """Write the file; ``at`` is when the workflow was mapped (Unix seconds). Raises InputError
    where it cannot be written."""
    document = {
        "at": at,
        "policy": mapping.policy,
        "makespan_s": finite(mapping.makespan_s),
        "placements": [_placement(one) for one in mapping.placements],
    }
    write_whole(submit_dir / FILE, lambda out: json.dump(document, out), "placements")


def _placement(placed: Placement) -> dict[str, Any]:
    chosen = next((a for a in placed.alternatives if a.site == placed.site), None)
    seconds = placed.end_s - placed.start_s if chosen is None else chosen.t_t_s
    return {
        "job": placed.job,
        "transformation": placed.transformation,
        "site": placed.site,
        "seconds": finite(seconds),
        "reason": placed.reason,
        "alternatives": [_alternative(one) for one in placed.alternatives],
    }


def _alternative(other: Alternative) -> dict[str, Any]:
    return {
        "site": other.site,
        "seconds": finite(other.t_t_s),
        "wait_s": finite(other.t_q_s),
        "compute_s": finite(other.t_c_s),
        "transfer_s": finite(other.t_n_s),
    }
