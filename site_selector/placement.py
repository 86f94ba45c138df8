"""The result of site selection as values and as JSON.

Infinite times (a site without resources) are ``null`` in JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from network_provisioner.errors import InputError
from site_selector.wholefile import write_whole

_TERMS = ("t_q_s", "t_c_s", "t_n_s", "t_t_s")


@dataclass(frozen=True, slots=True)
class Alternative:
    """A job's terms at one site that could run it. Seconds and bytes.

    ``t_c_s`` is S_c/(N·Γ_c) without T_q, so that the three terms add up to ``t_t_s``. ``gamma``
    says which of Γ_a and Γ_t bound, "" where nothing must move; ``path`` is "src>dst" of the move
    that takes longest. ``inputs`` holds t_q, n, gamma_c, gamma_a, gamma_t, each with value, source
    and age_s.
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

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        out: dict[str, Any] = {"site": self.site}
        for term in _TERMS:
            value = getattr(self, term)
            out[term] = value if math.isfinite(value) else None
        out["gamma"], out["path"] = self.gamma, self.path
        out["s_c_bytes"], out["s_t_bytes"] = self.s_c_bytes, self.s_t_bytes
        out["inputs"] = {name: dict(value) for name, value in self.inputs.items()}
        return out

    @classmethod
    def from_dict(cls, data: MappingType[str, Any]) -> Alternative:
        """The inverse of :meth:`as_dict`."""
        terms = {t: math.inf if data[t] is None else float(data[t]) for t in _TERMS}
        return cls(
            data["site"],
            **terms,
            gamma=data.get("gamma", ""),
            path=data.get("path", ""),
            s_c_bytes=data.get("s_c_bytes", 0.0),
            s_t_bytes=data.get("s_t_bytes", 0.0),
            inputs=data.get("inputs", {}),
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
class Mapping:
    """A whole workflow placed.

    ``portfolio`` holds the makespan in seconds that each policy would reach under the model,
    ``policy`` the one that won (with ``+search`` where moving jobs made it better still).
    """

    workflow: str
    policy: str
    makespan_s: float
    portfolio: MappingType[str, float]
    placements: tuple[Placement, ...]
    beliefs: MappingType[str, Any]
    output_site: str | None = None
    seed: int = 0

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
                    p.get("reason", ""),
                    tuple(Alternative.from_dict(a) for a in p.get("alternatives", ())),
                    p.get("start_s", 0.0),
                    p.get("end_s", 0.0),
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
                data.get("beliefs", {}),
                None if data.get("output_site") is None else _text(data, "output_site"),
                data.get("seed", 0),
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


def _text(data: MappingType[str, Any], key: str) -> str:
    value = data[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is a {type(value).__name__} and no text")
    return value


def _read(value: float | None) -> float:
    return math.inf if value is None else float(value)
