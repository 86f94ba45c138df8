"""The broker as the hooks' configuration names it, for everything that runs beside workflows."""

from __future__ import annotations

import os
from collections.abc import Mapping

from network_provisioner.base.hookconfig import HookConfig
from network_provisioner.client import BrokerClient
from network_provisioner.credentials import from_environment


def client_of(config: HookConfig, environ: Mapping[str, str] = os.environ) -> BrokerClient:
    """Its client; what the configuration says goes before the environment, and ``~`` in the name of
    a token's file is the user's home. Raises InputError."""
    file = config.token_file and os.path.expanduser(config.token_file)  # noqa: PTH111 - as quick
    named = {"ADON_TOKEN": config.token, "ADON_TOKEN_FILE": file, "ADON_CA": config.ca}
    given = {name: value for name, value in named.items() if value}
    if config.token and not config.token_file:
        given["ADON_TOKEN_FILE"] = ""
    token, tls = from_environment({**environ, **given})
    return BrokerClient(config.broker, config.timeout_s, token, tls)
