"""Who may start measurements between which sites, and who may see which results: the two questions
of the thesis, chapter 4 ("Who can initiate measurements within/between iPlant, MU and ISI
resources? Who can view the measurement data of certain performance metrics?").

A role (:mod:`network_provisioner.access`) says what somebody may do at all; rules say between which
sites and with which metrics. docs/security.md has the whole of it in words:

- Without a rule about it (``start`` or ``see``) the roles alone count; with one, what no rule
  allows is forbidden.
- A rule that names somebody (a key or a role) also gives what the role alone would not: a
  researcher may so start measurements. A rule for anybody only narrows.
- Engineers answer for the network, and no rule binds them. A key of the role ``agent`` never gets
  more than its role has.
- What belongs to a user's workflow is that user's, whatever the rules say, and of those who act for
  all users, as far as the rules let them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field

from monitors.base.measurement import OF_WORKFLOWS, Measurement
from network_provisioner.access import May, Principal, Role
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.schema import Schema, read
from network_provisioner.topology.graph import Topology

START, SEE = "start", "see"
_MAY = {START: May.START, SEE: May.SEE}
_ANYBODY = "*"
_OF_ALL = frozenset({"notice", "plan"})
OwnerOf = Callable[[str], str | None]
"""The user of a workflow, by its UUID; None where it is not known."""

# An empty list would mean anybody, and who wrote it meant nobody.
_Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Rule:
    """What it allows to whom. Every field is a set of names or patterns with ``*``, and an empty
    one is anything. ``who``: names of keys, or roles; ``may``: ``start``, ``see``; ``sites``:
    both ends must be among them, and what is at no site is at none of them."""

    who: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()

    def names(self, who: Principal) -> bool:
        """Whether it is about ``who`` in particular, and not about anybody."""
        meant = [pattern for pattern in self.who if pattern != _ANYBODY]
        return _among((who.name,), meant) or str(who.role) in meant

    def allows(self, who: Principal, what: str, sites: Sequence[str], metric: str) -> bool:
        """Whether it lets ``who`` do ``what`` with a metric at all of these sites."""
        return (
            (not self.may or what in self.may)
            and (not self.metrics or _among((metric,), self.metrics))
            and (not self.sites or (bool(sites) and _among(sites, self.sites)))
            and (self.names(who) or (self._for_anybody() and who.may(_MAY[what])))
        )

    def _for_anybody(self) -> bool:
        return not self.who or _ANYBODY in self.who


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """Whether somebody may, and by what: ``role researcher``, ``rule 2 of monitoring.access``."""

    may: bool
    why: str


def _nobody(_: str) -> str | None:
    return None


class Rules:
    """All rules of a broker, as values: a decision reads nothing but ``owner_of``."""

    def __init__(self, rules: Sequence[Rule] = (), owner_of: OwnerOf = _nobody) -> None:
        self._rules = tuple(rules)
        self._owner_of = owner_of

    def may_start(self, who: Principal, src: str, dst: str, metric: str) -> bool:
        """Whether ``who`` may start a measurement of ``metric`` from ``src`` to ``dst`` (names of
        sites or of hosts ``SITE/HOST``; ``dst`` is "" for what is measured at one end)."""
        return self.answer(who, START, _sites(src, dst), metric).may

    def may_see(self, who: Principal, measurement: Measurement) -> bool:
        """Whether ``who`` may see a measurement."""
        if measurement.workflow and who.users is not None:
            return self._acts_for(
                who, _said_owner(measurement) or self._owner_of(measurement.workflow)
            )
        if measurement.metric in _OF_ALL and who.users is not None:
            return False  # who is told of what is the business of those who act for all
        metric = measurement.metric
        if metric == "anomaly":
            metric = str(measurement.details.get("metric") or metric)
        return self.answer(who, SEE, sites_of(measurement.subject), metric).may

    def may_see_series(self, who: Principal, metric: str, subject: str) -> bool:
        """Whether ``who`` may see what is known of a subject on the whole: an estimate, a roll-up.
        They are about sites and paths, and so nobody's own, but for what names a workflow."""
        if metric in OF_WORKFLOWS and who.users is not None:
            return self._acts_for(who, self._owner_of(subject))
        if metric in _OF_ALL and who.users is not None:
            return False
        return self.answer(who, SEE, sites_of(subject), metric).may

    def need_start(self, who: Principal, src: str, dst: str, metric: str) -> None:
        """Raises BrokerError ``forbidden`` where it may not, with the reason."""
        answer = self.answer(who, START, _sites(src, dst), metric)
        if not answer.may:
            where = f"from {src} to {dst}" if dst else f"at {src}"
            raise BrokerError(
                f"{who.name!r} may not start {metric} {where}: {answer.why}"
                + ("" if answer.why.startswith("no rule") else " alone does not allow it"),
                "forbidden",
            )

    def answer(
        self, who: Principal, what: str, sites: Sequence[str], metric: str
    ) -> AccessDecision:
        """Whether ``who`` may ``start`` or ``see`` a metric at these sites, and why."""
        role = AccessDecision(who.may(_MAY[what]), f"role {who.role}")
        about = [
            (n, rule) for n, rule in enumerate(self._rules, 1) if not rule.may or what in rule.may
        ]
        if who.role in (Role.ENGINEER, Role.AGENT) or not about:
            return role
        for number, rule in about:
            if rule.allows(who, what, sites, metric):
                return AccessDecision(True, f"rule {number} of monitoring.access")
        return AccessDecision(False, "no rule of monitoring.access allows it")

    @staticmethod
    def _acts_for(who: Principal, owner: str | None) -> bool:
        return owner is not None and who.owns(owner) and who.may(May.SEE)

    def table(
        self, keys: Iterable[Principal], ends: Sequence[str], metric: str
    ) -> list[dict[str, object]]:
        """For each of ``keys`` whether it may start a metric between these ends and see the
        results, and why: the thesis's two questions."""
        sites = _sites(*ends)
        rows = []
        for who in keys:
            start, see = (self.answer(who, what, sites, metric) for what in (START, SEE))
            rows.append(
                {
                    "name": who.name,
                    "role": str(who.role),
                    "start": start.may,
                    "start_why": start.why,
                    "see": see.may,
                    "see_why": see.why,
                }
            )
        return rows


def sites_of(subject: str) -> tuple[str, ...]:
    """The sites that the subject of a measurement names: of ``mu>tacc/l2`` mu and tacc, of
    ``soykb::bwa:1.0@mu`` mu, of a host ``mu/node3`` mu; of ``soykb::bwa:1.0`` none."""
    if ">" in subject:
        return _sites(*subject.split(">", 1))
    if "@" in subject:
        return _sites(subject.rpartition("@")[2])
    return () if not subject or ":" in subject else _sites(subject)


class _Rule(Schema):
    who: _Names = ()
    may: Annotated[tuple[Literal["start", "see"], ...], Field(min_length=1)] = ()
    sites: _Names = ()
    metrics: _Names = ()


def rules_from_list(
    data: Sequence[object], topology: Topology, owner_of: OwnerOf = _nobody
) -> Rules:
    """Section ``monitoring.access``. Raises InputError for what cannot be meant."""
    return Rules([_rule(f"monitoring.access.{n}", item, topology) for n, item in enumerate(data)],
                 owner_of)  # fmt: skip


def _rule(where: str, item: object, topology: Topology) -> Rule:
    doc = read(_Rule, item, where)
    for name in doc.sites:
        if not any(fnmatchcase(site, name) for site in topology.sites):
            raise InputError(
                f"{where}.sites: found {name!r}, which is no site of the topology; expected some "
                f"of {', '.join(topology.sites)}"
            )
    return Rule(doc.who, doc.may, doc.sites, doc.metrics)


def _said_owner(measurement: Measurement) -> str | None:
    return (
        str(measurement.details.get("user") or "") or None
        if measurement.metric == "workflow"
        else None
    )


def _sites(*ends: str) -> tuple[str, ...]:
    return tuple(end.partition("/")[0] for end in ends if end)


def _among(names: Iterable[str], patterns: Iterable[str]) -> bool:
    patterns = tuple(patterns)
    return all(any(fnmatchcase(name, pattern) for pattern in patterns) for name in names)
