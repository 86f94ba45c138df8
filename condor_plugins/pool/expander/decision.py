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
    with a flavour (Unix seconds). ``failed``: requests that were refused, as text."""

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
        plan = self.plan
        return bool(plan.start or plan.drain or plan.keep or plan.give_up or self.delete)

    @property
    def in_the_way(self) -> dict[str, str]:
        """What is wanted and not done, with why."""
        plan = self.plan
        done = {*plan.start, *plan.drain, *plan.keep, *plan.give_up}
        return {what: why for what, why in plan.why.items() if what not in done}

    @property
    def reason(self) -> str:
        """All of it in one line."""
        plan = self.plan
        parts = [f"start {n} {name}: {plan.why.get(name)}" for name, n in plan.start.items()]
        for verb, names in (
            ("drain", plan.drain), ("keep", plan.keep), ("give up", plan.give_up)
        ):  # fmt: skip
            parts += _grouped(verb, {name: plan.why.get(name, "") for name in names})
        parts += _grouped("delete", self.delete)
        parts += [f"{what}: {why}" for what, why in self.in_the_way.items()]
        return "; ".join((*parts, *self.failed)) or "nothing to do"

    def as_measurement(self, pool: str) -> Measurement:
        """The value is how many machines boot and run after it."""
        plan = self.plan
        details = {
            "start": dict(plan.start),
            "drain": list(plan.drain),
            "keep": list(plan.keep),
            "give_up": list(plan.give_up),
            "delete": dict(self.delete),
            "why": dict(plan.why),
            "failed": list(self.failed),
            "demand": dict(self.demand),
            "machines": dict(self.machines),
            "matched": dict(self.matched),
            "reason": self.reason,
        }
        there = self.machines.get("booting", 0) + self.machines.get("running", 0)
        after = there + sum(plan.start.values()) + len(plan.keep)
        after -= len(plan.give_up) + len(plan.drain)
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
    details = {"name": name}
    id_ = key("boot", pool, name)
    return Measurement(id_, "boot", flavour, took_s, "s", now, SOURCE, "", details)


def machine_lifetime(
    pool: str, name: str, flavour: str, lived_s: float, price: float, why: str, now: float
) -> Measurement:
    """A machine is deleted; ``price`` was per hour."""
    details = {"name": name, "price": price, "why": why}
    id_ = key("machine", pool, name)
    return Measurement(id_, "machine", flavour, lived_s, "s", now, SOURCE, "", details)
