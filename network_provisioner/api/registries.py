"""What is kept beside transits, handed to the application together."""

from __future__ import annotations

from dataclasses import dataclass

from network_provisioner.policies.registry import PolicyRegistry
from network_provisioner.stores.store import Store
from network_provisioner.templates.registry import TemplateRegistry


@dataclass(frozen=True, slots=True)
class Registries:
    """Policies and templates, the same ones that the broker uses, and its store: the accounts."""

    policies: PolicyRegistry
    templates: TemplateRegistry
    store: Store
