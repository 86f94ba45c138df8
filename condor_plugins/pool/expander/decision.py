"""What a turn found and did, and how the archive keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from condor_plugins.pool.scaling import ScalingPlan
from monitors.base.measurement import Measurement

SOURCE = "adon pool"


@dataclass(frozen=True, slots=True)
class PoolDecision:
    """``delete``: machines that are over, by name with why. ``demand``: jobs by where they are
    known from; ``machines`` by what they do. ``matched``: when the negotiator last matched a job
    with a flavour (Unix seconds). ``failed``: requests that were refused, in words."""

    at: float
    plan: ScalingPlan
    delete: Mapping[str, str]
    demand: Mapping[str, int]
    machines: Mapping[str, int]
    matched: Mapping[str, float] = field(default_factory=dict)
    failed: tuple[str, ...] = ()

    @property
    def acts(self) -> bool:
        """Whether anything is to be done."""
        found = self.plan
        return bool(found.start or found.drain or found.keep or found.give_up or self.delete)

    @property
    def in_the_way(self) -> dict[str, str]:
        """What is wanted and not done, with why."""
        found = self.plan
        done = {*found.start, *found.drain, *found.keep, *found.give_up}
        return {what: why for what, why in found.why.items() if what not in done}

    @property
    def reason(self) -> str:
        """All of it in one line."""
        found = self.plan
        parts = [f"start {n} {name}: {found.why.get(name)}" for name, n in found.start.items()]
        for verb, names in (
            ("drain", found.drain), ("keep", found.keep), ("give up", found.give_up)
        ):  # fmt: skip
            parts += _grouped(verb, {name: found.why.get(name, "") for name in names})
        parts += _grouped("delete", self.delete)
        parts += [f"{what}: {why}" for what, why in self.in_the_way.items()]
        return "; ".join((*parts, *self.failed)) or "nothing to do"

    def as_measurement(self, pool: str) -> Measurement:
        """The value is how many machines boot and run after it."""
        found = self.plan
        details = {
            "start": dict(found.start),
            "drain": list(found.drain),
            "keep": list(found.keep),
            "give_up": list(found.give_up),
            "delete": dict(self.delete),
            "why": dict(found.why),
            "failed": list(self.failed),
            "demand": dict(self.demand),
            "machines": dict(self.machines),
            "matched": dict(self.matched),
            "reason": self.reason,
        }
        there = self.machines.get("booting", 0) + self.machines.get("running", 0)
        after = there + sum(found.start.values()) + len(found.keep)
        after -= len(found.give_up) + len(found.drain)
        id_ = key("pool_decision", pool, repr(self.at))
        return Measurement(
            id_, "pool_decision", pool, float(after), "1", self.at, SOURCE, "", details
        )


def _grouped(verb: str, whys: Mapping[str, str]) -> list[str]:
    """Those with the same reason together."""
    groups: dict[str, list[str]] = {}
    for name, why in whys.items():
        groups.setdefault(why, []).append(name)
    return [f"{verb} {', '.join(names)}: {why}" for why, names in groups.items()]


def key(metric: str, pool: str, name: str) -> str:
    """The id of what is measured once of a machine."""
    return f"{metric}:{pool}:{name}"


def boot(pool: str, name: str, flavour: str, took_s: float, now: float) -> Measurement:
    """A machine has joined, so long after it was asked for."""
    told = {"name": name}
    id_ = key("boot", pool, name)
    return Measurement(id_, "boot", flavour, took_s, "s", now, SOURCE, "", told)


def lived(
    pool: str, name: str, flavour: str, lived_s: float, price: float, why: str, now: float
) -> Measurement:
    """A machine is deleted; ``price`` was per hour."""
    told = {"name": name, "price": price, "why": why}
    id_ = key("machine", pool, name)
    return Measurement(id_, "machine", flavour, lived_s, "s", now, SOURCE, "", told)
