"""The result of site selection as values and as JSON.

Infinite times (a site without resources) are ``null`` in JSON. The values are plain dataclasses,
because a workflow has many and the planner plug-in makes them without pydantic, whose import takes
longer than mapping a small workflow; a file is read and written by it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from monitors.workflows.facts.plan import FILE
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import transfer_time
from site_selector.estimates.world import origin
from site_selector.problem import NEVER_S
from site_selector.wholefile import write_whole

_STRICT = {"strict": True, "allow_inf_nan": False}


class _OrInfinite:
    """For pydantic: a finite number, or null for infinity."""

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415

        number = core_schema.float_schema(strict=True, allow_inf_nan=False)
        return core_schema.no_info_after_validator_function(
            lambda value: math.inf if value is None else value,
            core_schema.nullable_schema(number),
            serialization=core_schema.plain_serializer_function_ser_schema(finite),
        )


def finite(value: float) -> float | None:
    """The value, or None if it is infinite: JSON has no infinity."""
    return value if math.isfinite(value) else None


def shown_seconds(seconds: float) -> float:
    """Seconds, infinite for what the model takes for never."""
    return seconds if seconds < NEVER_S else math.inf


Bound = Annotated[float, _OrInfinite()]


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes of one job that must move from one place to another. Rates in bits per second."""

    __pydantic_config__: ClassVar = _STRICT

    path: str  # "src>dst"
    s_t_bytes: float
    gamma_a_bps: Bound
    gamma_t_bps: Bound

    @property
    def rate_bps(self) -> float:
        """min(Γ_t, Γ_a)."""
        return min(self.gamma_a_bps, self.gamma_t_bps)

    @property
    def seconds(self) -> float:
        """How long it takes alone."""
        return transfer_time(self.s_t_bytes, self.rate_bps)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A job's terms at one site that could run it. Seconds and bytes.

    ``t_c_s`` is S_c/(N·Γ_c) without T_q, so that the three terms add up to ``t_t_s``. ``gamma``
    says which of Γ_a and Γ_t bound, "" if nothing must move; ``path`` is "src>dst" of the move
    that takes longest, and ``moves`` has them all. ``inputs`` holds t_q, n, gamma_c, gamma_a,
    gamma_t, each with value, source and age_s.
    """

    __pydantic_config__: ClassVar = _STRICT

    site: str
    t_q_s: Bound
    t_c_s: Bound
    t_n_s: Bound
    t_t_s: Bound
    gamma: str = ""
    path: str = ""
    s_c_bytes: float = 0.0
    s_t_bytes: float = 0.0
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a job goes, why, and what it would cost elsewhere.

    ``start_s`` and ``end_s`` are when the model expects it to run, from the start of the workflow.
    ``queued`` says what lacks where it fits nowhere now, and waits in the scheduler's queue.
    ``priority`` is the ``condor: priority`` by which it starts in the order that the mapping takes
    for granted, or the user's own; None if none can be handed over. ``data_configuration`` is
    Pegasus's, for the job at this site.
    """

    __pydantic_config__: ClassVar = _STRICT

    job: str
    transformation: str
    site: str
    reason: str = ""
    alternatives: tuple[Alternative, ...] = ()
    start_s: float = 0.0
    end_s: float = 0.0
    queued: str = ""
    priority: int | None = None
    data_configuration: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return _dumped(self)


@dataclass(frozen=True, slots=True)
class Withstands:
    """What was gained by not trusting the estimates.

    ``makespan_s`` is what the best mapping under the estimates would reach there. In ``better`` of
    ``drawn`` worlds drawn around the estimates the chosen mapping ends sooner than that one, in
    ``worse`` later; ``gain`` is the mean saving over them as a fraction (geometric).
    """

    __pydantic_config__: ClassVar = _STRICT

    makespan_s: Bound
    drawn: int
    better: int
    worse: int
    gain: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a mapping ends, over ``drawn`` worlds around the estimates by which it was not chosen:
    the median, and what 5 % of them are below and above. Seconds."""

    __pydantic_config__: ClassVar = _STRICT

    median_s: Bound
    low_s: Bound
    high_s: Bound
    drawn: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """A whole workflow placed. ``makespan_s`` is what it takes if all estimates are right, which it
    was chosen by; ``forecast`` what it is expected to take, None if nothing is in doubt.

    ``portfolio`` holds the makespan in seconds that each policy would reach under the model,
    ``policy`` the one that won (with ``+search`` where moving jobs made it better still).
    ``withstands`` is None if the mapping is the best under the estimates or was taken because
    it moves less.
    """

    __pydantic_config__: ClassVar = _STRICT

    workflow: str
    policy: str
    makespan_s: Bound
    portfolio: dict[str, Bound]
    placements: tuple[Placement, ...]
    beliefs: dict[str, Any] = field(default_factory=dict)
    output_site: str | None = None
    seed: int = 0
    withstands: Withstands | None = None
    forecast: Forecast | None = None

    @property
    def expected_s(self) -> float:
        """Seconds that the workflow is expected to take."""
        return self.makespan_s if self.forecast is None else self.forecast.median_s

    @property
    def sites(self) -> dict[str, str]:
        """Site by job id."""
        return {p.job: p.site for p in self.placements}

    @property
    def priorities(self) -> dict[str, int]:
        """Priority by job id, of those that have one."""
        return {p.job: p.priority for p in self.placements if p.priority is not None}

    @property
    def queued(self) -> list[str]:
        """What is missing for how many jobs, one line each; empty if all fits."""
        return queue_lines(p.queued for p in self.placements)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return _dumped(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Mapping:
        """What :meth:`save` writes. Raises InputError if it is something else."""
        from network_provisioner.base.schema import read_json  # noqa: PLC0415

        mapping = read_json(Mapping, text, "the site mapping")
        if len(mapping.sites) < len(mapping.placements):
            raise InputError("the site mapping has a job twice, expected each once")
        return mapping

    def save(self, path: str | Path) -> None:
        """Write as JSON, all or nothing. Raises InputError if the file cannot be written."""
        text = self._json()
        write_whole(path, lambda stream: stream.write(text), "the mapping")

    def _json(self) -> str:
        """One line per key and per job, so that people can read it."""
        data = self.as_dict()
        jobs = ",\n".join(json.dumps(p) for p in data.pop("placements"))
        head = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in data.items())
        return f'{{{head},\n"placements": [\n{jobs}\n]}}\n'

    @classmethod
    def load(cls, path: str | Path) -> Mapping:
        """Read what :meth:`save` wrote. Raises InputError."""
        try:
            return cls.from_json(Path(path).read_bytes())
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}, expected a site mapping") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def queue_lines(reasons: Iterable[str]) -> list[str]:
    """What is missing for how many jobs, one line each, of the reason of every job that waits."""
    counts = Counter(filter(None, reasons))
    return [
        f"{count} job{'s wait' if count > 1 else ' waits'} in the scheduler's queue: {why}"
        for why, count in counts.items()
    ]


def _dumped(value: object) -> dict[str, Any]:
    from network_provisioner.base.schema import adapter  # noqa: PLC0415

    return adapter(type(value)).dump_python(value, mode="json")  # type: ignore[no-any-return]


def write_placements(submit_dir: Path, mapping: Mapping, at: float) -> None:
    """Write the file; ``at`` is when the workflow was mapped (Unix seconds). Raises InputError
    where it cannot be written."""
    document = {
        "at": at,
        "policy": mapping.policy,
        "makespan_s": finite(mapping.expected_s),
        "range_s": None
        if mapping.forecast is None
        else [finite(mapping.forecast.low_s), finite(mapping.forecast.high_s)],
        "estimate_s": finite(mapping.makespan_s),
        "portfolio": {name: finite(seconds) for name, seconds in mapping.portfolio.items()},
        "note": mapping.beliefs.get("note", ""),
        "placements": [_placement(placement, mapping.beliefs) for placement in mapping.placements],
    }
    write_whole(submit_dir / FILE, lambda out: json.dump(document, out), "placements")


def _placement(placed: Placement, estimates: dict[str, Any]) -> dict[str, Any]:
    chosen = next((a for a in placed.alternatives if a.site == placed.site), None)
    seconds = placed.end_s - placed.start_s if chosen is None else chosen.t_t_s
    return {
        "job": placed.job,
        "transformation": placed.transformation,
        "site": placed.site,
        "seconds": finite(seconds),
        "reason": placed.reason,
        "queued": placed.queued,
        "alternatives": [_alternative(alternative) for alternative in placed.alternatives],
        "believed": {} if chosen is None else _estimated(chosen, estimates.get("paths", {})),
    }


def _estimated(chosen: Alternative, paths: dict[str, dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """What its terms come from, to be held against the truth: value and source, and of a path the
    seconds before bytes move and for each further file."""
    estimates: dict[str, tuple[Any, ...]] = {}
    if (wait := chosen.inputs.get("t_q")) is not None:
        estimates["queue_wait"] = (wait["value"], origin(wait))
    if (rate := chosen.inputs.get("gamma_c")) is not None and rate["value"]:
        estimates["runtime"] = (chosen.s_c_bytes / rate["value"], origin(rate))
    for move in chosen.moves:
        if (path := paths.get(move.path)) is not None:
            start_times = (path.get(key, {}).get("value", 0.0) for key in ("first", "further"))
            estimates[move.path] = (finite(move.rate_bps), origin(path["gamma_a"]), *start_times)
    return estimates


def _alternative(other: Alternative) -> dict[str, Any]:
    return {
        "site": other.site,
        "seconds": finite(other.t_t_s),
        "wait_s": finite(other.t_q_s),
        "compute_s": finite(other.t_c_s),
        "transfer_s": finite(other.t_n_s),
    }
