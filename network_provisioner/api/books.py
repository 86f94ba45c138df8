"""What is kept beside transits, handed to the application together."""

from __future__ import annotations

from dataclasses import dataclass

from network_provisioner.policies.accounting import Accounts
from network_provisioner.policies.book import PolicyBook
from network_provisioner.templates.book import TemplateBook


@dataclass(frozen=True, slots=True)
class Books:
    """Policies, templates and accounts; the same ones that the broker uses."""

    policies: PolicyBook
    templates: TemplateBook
    accounts: Accounts
