"""Versions of templates as documents of the store, and back."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from network_provisioner.access import ANYBODY, May, Principal
from network_provisioner.base.errors import BrokerError, InputError, did_you_mean
from network_provisioner.stores.store import Document
from network_provisioner.templates.data import template_from_dict, template_to_dict
from network_provisioner.templates.learn import table_of
from network_provisioner.templates.sitepolicy import TemplatePolicy, capped_template
from network_provisioner.templates.template import Template

log = logging.getLogger(__name__)

KIND = "template"
LEARNED = "template-learned"
LEVELS = "template-levels"
ORIGIN_BUILT_IN, ADON_YML, SAVED = "built in", "adon.yml", "saved"


Source = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TemplateEntry:
    """A version of a template. ``template`` is within today's policy and knows the peak.

    ``origin``   "built in", "adon.yml" or "saved"; ``by`` whom, "" where nobody said
    ``source``   what it was made from: ``{"transit": id}``, ``{"restored": version}`` or nothing
    ``trusted``  saved by someone whom the policy does not bind
    ``users``    whose applications it is found for, None for all; by its name anybody has it
    ``learned``  the best transfer: ``{transit, version, peak, tuning, at}``, empty for none
    ``capped``   what the policy lowered, in words
    """

    template: Template
    origin: str
    at: float
    by: str = ""
    trusted: bool = True
    source: Source = field(default_factory=dict)
    learned: Source = field(default_factory=dict)
    capped: tuple[str, ...] = ()
    users: frozenset[str] | None = None

    def is_for(self, user: str) -> bool:
        """Whether it is found for a user's applications."""
        return self.users is None or user in self.users

    @property
    def configured(self) -> bool:
        """Whether the site has it, and not someone's saving."""
        return self.origin != SAVED


def body_of(
    template: Template, origin: str, by: Principal = ANYBODY, source: Source | None = None
) -> dict[str, Any]:
    """The body of the document that :func:`entry_of` reads."""
    return {
        "template": template_to_dict(template),
        "origin": origin,
        "by": by.name,
        "trusted": by.may(May.MANAGE),
        "source": dict(source or {}),
        "users": None if by.users is None else sorted(by.users),
    }


def entry_of(
    document: Document, policy: TemplatePolicy, learned: Source, levels: Source | None = None
) -> TemplateEntry | None:
    """An entry from its document; None, and a line in the log, for one that cannot be read."""
    body = document.body
    try:
        template = template_from_dict(document.name, body["template"])
        origin, by, trusted = str(body["origin"]), str(body["by"]), body["trusted"] is True
        source = dict(body["source"])
        users = None if trusted else body.get("users", [by])
        peak = float(learned.get("peak", 0.0))  # whatever the figures say: it is learned
    except (InputError, KeyError, TypeError, ValueError) as error:
        log.warning("template %s %d is left out: %s", document.name, document.version, error)
        return None
    words: list[str] = []
    if not trusted:
        template, words = capped_template(template, policy)
    reached = table_of(levels or {}, template.qspec.min_bps)
    template = replace(template, version=document.version, peak_bps=peak, reached=reached)
    return TemplateEntry(
        template, origin, document.at, by, trusted, source, learned, tuple(words),
        None if users is None else frozenset(users),
    )  # fmt: skip


def figures(template: Template) -> Template:
    """A template without what counts or learns, to compare."""
    return replace(template, version=1, peak_bps=0.0, reached=())


def check_owner(name: str, entry: TemplateEntry | None, by: Principal) -> None:
    """Raises BrokerError ``forbidden`` where self-service would change what is not its own."""
    if entry is None or by.may(May.MANAGE) or (not entry.configured and entry.by == by.name):
        return
    whose = entry.origin if entry.configured else f"saved by {entry.by or 'someone'}"
    raise BrokerError(
        f"template {name!r} is {whose}, expected a name that is free or yours", "forbidden"
    )


def unknown(name: str, known: Sequence[str], version: int | None = None) -> BrokerError:
    """The refusal of a template or a version that is not there."""
    if version is not None and name in known:
        return BrokerError(
            f"template {name!r} has no version {version}, expected one of its history",
            "unknown_template",
        )
    return BrokerError(
        f"unknown template {name!r}, expected one of {', '.join(known)}{did_you_mean(name, known)}",
        "unknown_template",
    )
