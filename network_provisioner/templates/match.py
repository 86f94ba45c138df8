"""Which template fits an application and what it asks for (thesis, §3.1 and Figure 4).

    1. the template of the application's name
    2. a template with a pattern for it: most letters that are no wildcard first, then by name
    3. the nearest specification: the smallest distance between what is asked for and what the
       template says, each figure as the power of two between them, then by name

A template fits where it can serve what is asked for: its RSpec is not below the minimum, and it
promises no less of delay, jitter and loss. At every step those that do not fit are passed over, and
the answer says why. A template found by likeness alone lends its figures, not its rank: its
priority is at most that of ``default``.

Pure: the same templates and questions give the same answer in whatever order they come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from network_provisioner.base.schema import STRICT, Duration, Fraction
from network_provisioner.base.units import format_rate
from network_provisioner.templates.template import Positive, Template

DEFAULT = "default"
_LEAST = 1e-9  # stands for a limit of 0 where a ratio is needed


@dataclass(frozen=True, slots=True)
class Specification:
    """The QSpec and RSpec asked for; None where nothing was said.

    Bits per second; seconds, ``max_delay_s`` for a round trip; ``max_loss`` is a fraction.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    min_bps: Annotated[Positive | None, Field(alias="min_throughput")] = None
    max_bps: Annotated[Positive | None, Field(alias="max_throughput")] = None
    max_delay_s: Annotated[Duration | None, Field(alias="max_delay")] = None
    max_jitter_s: Annotated[Duration | None, Field(alias="max_jitter")] = None
    max_loss: Fraction | None = None

    @property
    def limits(self) -> dict[str, float]:
        """The limits that were asked for, by metric."""
        named = {"delay": self.max_delay_s, "jitter": self.max_jitter_s, "loss": self.max_loss}
        return {metric: limit for metric, limit in named.items() if limit is not None}


@dataclass(frozen=True, slots=True)
class Match:
    """The template that fits or None; ``how`` is name, pattern, nearest or ""; why in words, and of
    those that were passed over why not, by name."""

    template: Template | None
    how: str
    reason: str
    passed_over: Mapping[str, str]


def match(templates: Iterable[Template], application: str, wanted: Specification) -> Match:
    """The template for an application that asks for ``wanted``; how: see the module."""
    known = {t.name: t for t in sorted(templates, key=lambda t: t.name)}
    unfit = {name: why for name, t in known.items() if (why := misfit(t, wanted))}
    fit = [t for t in known.values() if t.name not in unfit]
    app = application.casefold()
    named = [t for t in fit if app and t.name.casefold() == app]
    if named:
        return Match(named[0], "name", f"{named[0].name!r} has the application's name", unfit)
    _, pattern, template = min(
        (
            (-_letters(pattern), pattern, t)
            for t in fit
            for pattern in t.applications
            if app and fnmatchcase(app, pattern.casefold())
        ),
        key=lambda hit: (hit[0], hit[2].name, hit[1]),
        default=(0, "", None),
    )
    if template is not None:
        words = f"{template.name!r} is for {pattern!r}, which {application!r} is"
        return Match(template, "pattern", words, unfit)
    nowhere = f"no template is for {application!r}" if application else "no application was named"
    if wanted == Specification() or not fit:
        why = "none allows what is asked for" if fit == [] and known else "nothing was asked for"
        return Match(None, "", f"{nowhere}, and {why}", unfit)
    nearest = min(fit, key=lambda t: (distance(t, wanted), t.name))
    words = f"{nowhere}; {nearest.name!r} is nearest to what is asked for"
    if nearest.peak_bps:
        words += f" (its best transfer reached {format_rate(nearest.peak_bps)})"
    rank = known[DEFAULT].priority if DEFAULT in known else 0
    if nearest.priority > rank:
        words += f"; without its priority {nearest.priority}, which is for its own applications"
        nearest = replace(nearest, priority=rank)
    return Match(nearest, "nearest", words, unfit)


def misfit(template: Template, wanted: Specification) -> str:
    """Why a template cannot serve what is wanted; "" where it can."""
    least_bps, most_bps = wanted.min_bps, template.rspec.max_bps
    if least_bps is not None and most_bps is not None and least_bps > most_bps:
        return f"allows {format_rate(most_bps)}, {format_rate(least_bps)} needed"
    for metric, most in wanted.limits.items():
        limit = template.qspec.limit(metric)
        if limit is None:
            return f"promises nothing of {metric}, at most {most:g} needed"
        if limit > most:
            return f"lets {metric} be {limit:g}, at most {most:g} needed"
    return ""


def distance(template: Template, wanted: Specification) -> float:
    """How far a template's figures are from those asked for: 0 for the same, 1 for a factor of two
    in one of them. Figures that were not asked for do not count."""
    pairs: list[tuple[float | None, float | None]]
    pairs = [(template.qspec.limit(metric), most) for metric, most in wanted.limits.items()]
    pairs += [(template.qspec.min_bps, wanted.min_bps), (template.rspec.max_bps, wanted.max_bps)]
    parts = [
        abs(math.log2(max(here, _LEAST) / max(there, _LEAST)))
        for here, there in pairs
        if here is not None and there is not None
    ]
    # Rounded, so that the order of additions cannot decide between equals.
    return round(math.fsum(parts), 9)


def _letters(pattern: str) -> int:
    """How many characters of a pattern are none of its wildcards."""
    count, inside = 0, False
    for character in pattern:
        if character == "[" and not inside:
            inside = True
        elif character == "]" and inside:
            inside = False
        elif not inside and character not in "*?":
            count += 1
    return count
