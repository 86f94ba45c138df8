"""What the watcher needs of the world, and how it really is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from network_provisioner.base import patience
from network_provisioner.base.hookclient import client_of
from network_provisioner.base.hookconfig import HookConfig
from network_provisioner.client import BrokerClient
from network_provisioner.model import Transit


class Broker(patience.Broker, Protocol):
    """The part of ``network_provisioner.client.BrokerClient`` that the watcher uses."""

    def list(self, state: str | None = None, workflow: str | None = None) -> list[Transit]:
        """The transits in this state of this workflow."""
        ...


@dataclass(slots=True)
class Brokers:
    """A client for each configuration, made when it is first needed."""

    _made: dict[HookConfig, BrokerClient] = field(default_factory=dict)

    def __call__(self, config: HookConfig) -> Broker:
        """Raises InputError for an address or a token that is none."""
        if config not in self._made:
            self._made[config] = client_of(config)
        return self._made[config]
