"""The broker's client as a configuration of hooks has it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from network_provisioner.client import BrokerClient
from network_provisioner.credentials import from_environment
from network_provisioner.hookconfig import HookConfig


def broker_of(
    config: HookConfig, environ: Mapping[str, str], token_file: str | None = None
) -> BrokerClient:
    """Where it answers, and what it is shown: what the configuration says goes before the
    environment, ``token_file`` before both; ``~`` is the home of whoever runs this. Raises
    InputError."""
    file = token_file or config.token_file
    if file is not None and file.startswith("~/"):
        # HTCondor starts a hook as the job's owner, with HOME as the daemons have it.
        file = pwd.getpwuid(os.getuid()).pw_dir + file[1:]
    named = {"ADON_TOKEN": config.token, "ADON_TOKEN_FILE": file, "ADON_CA": config.ca}
    given = {name: value for name, value in named.items() if value}
    if config.token and not file:
        given["ADON_TOKEN_FILE"] = ""
    token, tls = from_environment({**environ, **given})
    return BrokerClient(config.broker, config.timeout_s, token, tls)
