"""The template of a request or a transit, and how it wants its transfer served."""

from __future__ import annotations

from collections.abc import Mapping

from network_provisioner.base.errors import BrokerError, did_you_mean
from network_provisioner.base.model import Service, Transit, TransitRequest
from network_provisioner.templates.advice import Advice
from network_provisioner.templates.match import DEFAULT, Specification
from network_provisioner.templates.registry import TemplateRegistry
from network_provisioner.templates.template import Template, Tuning

Templates = Mapping[str, Template] | TemplateRegistry
"""Templates by name. A plain mapping has one version of each, and finds none by application."""


def template_of(transit: Transit, templates: Templates) -> Template | None:
    """The template a transit was asked with, in the version of then where that is kept: who waits
    or holds a path keeps the terms that were agreed. None where there is no such template now."""
    now = templates.get(transit.request.template)
    if now is None or now.version == transit.request.template_version:
        return now
    if isinstance(templates, TemplateRegistry):
        return templates.version(transit.request.template, transit.request.template_version) or now
    return now


def template_for(request: TransitRequest, templates: Templates) -> Template:
    """The template named in a request; for one that names none, that of its application.

    Raises BrokerError ``unknown_template``.
    """
    if (
        request.template == DEFAULT
        and request.application
        and isinstance(templates, TemplateRegistry)
    ):
        wanted = Specification(request.min_bps, request.max_bps)
        matched = templates.match(request.application, wanted, request.user)
        if matched is not None:
            return matched
    template = templates.get(request.template)
    if template is None and request.best_effort:  # nothing is asked of it
        template = templates.get(DEFAULT)
    if template is None:
        raise BrokerError(
            f"unknown template {request.template!r}, expected one of "
            f"{', '.join(sorted(templates))}{did_you_mean(request.template, templates)}",
            "unknown_template",
        )
    return template


def service_for(
    request: TransitRequest,
    transit: Transit | None,
    templates: Templates,
    advice: Advice | None = None,
) -> Service:
    """How the template of a request, or of the transit that it got, wants it served; tuned by the
    ``advice`` for its path where the template leaves it open."""
    try:
        template = None if transit is None else template_of(transit, templates)
        template = template or template_for(request, templates)
    except BrokerError:
        return Service()
    taught = None
    if isinstance(templates, TemplateRegistry):
        taught = templates.tuning_of(template.name, request.user)
    return service_of(template, taught, advice)


def service_of(
    template: Template, taught: Tuning | None = None, advice: Advice | None = None
) -> Service:
    """How a template wants its transfers served. Tuned as it says; where it says nothing of its
    own, by the ``advice`` for the path, else as the best transfer was that it ``taught``; else not
    at all."""
    usual = Tuning()

    def figure(name: str) -> int:
        own, plain = getattr(template.tuning, name), getattr(usual, name)
        learned = plain if taught is None else getattr(taught, name)
        value = own if own != plain else learned
        return 0 if value == plain else int(value)

    streams, buffer_bytes, threads = map(figure, ("streams", "buffer_bytes", "threads"))
    why = "as the best transfer with this template was" if taught else ""
    if template.tuning != usual:
        why = "as the template says"
    if advice and (template.tuning.streams, template.tuning.buffer_bytes) == (
        usual.streams,
        usual.buffer_bytes,
    ):
        streams, buffer_bytes, why = advice.streams, advice.buffer_bytes, advice.why
    return Service(
        template=template.name,
        version=template.version,
        patience_s=template.patience_s,
        when_queued=template.when_queued,
        streams=streams,
        buffer_bytes=buffer_bytes,
        threads=threads,
        why=why if streams or buffer_bytes or threads else "",
    )
