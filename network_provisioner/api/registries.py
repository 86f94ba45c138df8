"""What is kept beside transits, handed to the application together."""

from __future__ import annotations

from dataclasses import dataclass

from network_provisioner.policies.accounting import Accounts
from network_provisioner.policies.registry import PolicyRegistry
from network_provisioner.templates.registry import TemplateRegistry


@dataclass(frozen=True, slots=True)
class Registries:
    """Policies, templates and accounts; the same ones that the broker uses."""

    policies: PolicyRegistry
    templates: TemplateRegistry
    accounts: Accounts
