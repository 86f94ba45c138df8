"""What a site allows templates that people save for themselves (thesis, §3.1: campus policies).

Where it does not say, any rate, and no priority above that of the built-in template.

Of what is above, the ceilings (RSpec, priority, patience, paths) are lowered and the answer says
so. A minimum is what an application needs: lowering it would make another template of it, so one
that is above is refused when it is saved. Where the site becomes stricter afterwards, the minimum
of those that were saved before is lowered too, because their users are not there to be asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import ConfigDict, Field

from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import STRICT, Duration, Whole, read
from network_provisioner.base.units import format_rate
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.templates.template import (
    MOST_PATHS,
    MOST_PRIORITY,
    Positive,
    RSpec,
    Template,
)

T = TypeVar("T", int, float)
_BEGINNING = re.compile(r"[^\W_]{3}")


@dataclass(frozen=True, slots=True)
class TemplatePolicy:
    """The most a template may have that was saved in self-service; None sets no limit."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    max_bps: Annotated[Positive | None, Field(alias="max_throughput")] = None
    max_priority: Annotated[Whole, Field(ge=0, le=MOST_PRIORITY)] | None = None
    max_patience_s: Annotated[Duration | None, Field(alias="max_patience")] = None
    max_paths: Annotated[Whole, Field(ge=1, le=MOST_PATHS)] | None = None
    max_templates: Annotated[Whole, Field(ge=0)] | None = 100  # of one user


def policy_from_dict(data: Mapping[str, Any] | None) -> TemplatePolicy:
    """The section ``template_policy`` of adon.yml: ``{max_throughput?, max_priority?,
    max_patience?, max_paths?, max_templates?}``; a priority that it does not name is that of the
    built-in template, null is no limit. Raises InputError."""
    usual = {"max_priority": max(t.priority for t in templates_from_dict(None).values())}
    given = {} if data is None else data
    both = usual | dict(given) if isinstance(given, Mapping) else given
    return read(TemplatePolicy, both, "template_policy")


def check(template: Template, policy: TemplatePolicy) -> None:
    """Raises InputError for a template that needs more than the site allows, or is for so many
    applications that others' would come under it."""
    for pattern in template.applications:
        if not _BEGINNING.match(pattern):
            raise InputError(
                f"template {template.name!r}: applications: found {pattern!r}, expected a pattern "
                "that begins with three letters or digits where it is saved in self-service"
            )
    if policy.max_bps is not None and template.qspec.min_bps > policy.max_bps:
        raise InputError(
            f"template {template.name!r}: qspec.min_throughput is "
            f"{format_rate(template.qspec.min_bps)}, expected at most "
            f"{format_rate(policy.max_bps)}, all that this site allows"
        )


def capped_template(template: Template, policy: TemplatePolicy) -> tuple[Template, list[str]]:
    """The template within the policy, and in words what was lowered for it."""
    words: list[str] = []

    def lowered(key: str, value: T, most: T | None, shown: Callable[[T], str] = str) -> T:
        if most is None or value <= most:
            return value
        limit = f"{shown(most)}, the most that this site allows"
        words.append(f"{key} {shown(value)} is lowered to {limit}")
        return most

    q, rate, most_bps = template.qspec, policy.max_bps, template.rspec.max_bps
    if most_bps is None and rate is not None:
        words.append(f"max_throughput is {format_rate(rate)}, the most that this site allows")
    return replace(
        template,
        rspec=RSpec(rate)
        if most_bps is None
        else RSpec(lowered("max_throughput", most_bps, rate, format_rate)),
        qspec=replace(q, min_bps=lowered("min_throughput", q.min_bps, rate, format_rate)),
        priority=lowered("priority", template.priority, policy.max_priority),
        patience_s=lowered(
            "patience", template.patience_s, policy.max_patience_s, lambda s: f"{s:g} s"
        ),
        paths=lowered("paths", template.paths, policy.max_paths),
    ), words
