"""The broker's client for what HTCondor starts."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import replace

from network_provisioner.base.hookclient import client_of
from network_provisioner.base.hookconfig import HookConfig
from network_provisioner.client import BrokerClient


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
    return client_of(replace(config, token_file=file), environ)
