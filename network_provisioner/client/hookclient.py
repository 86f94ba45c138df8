"""The broker as the hooks' configuration names it, for everything that runs beside workflows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.credentials import from_environment
from network_provisioner.client.hookconfig import HookConfig


def client_of(
    config: HookConfig,
    environ: Mapping[str, str] = os.environ,
    token_file: str | None = None,
    expand: Callable[[str], str] = os.path.expanduser,
) -> BrokerClient:
    """Its client; what the configuration says goes before the environment, ``token_file`` before
    both, and ``expand`` makes ``~`` in its name the user's home. Raises InputError."""
    named = token_file or config.token_file
    file = named and expand(named)
    settings = {"ADON_TOKEN": config.token, "ADON_TOKEN_FILE": file, "ADON_CA": config.ca}
    given = {name: value for name, value in settings.items() if value}
    if config.token and not named:
        given["ADON_TOKEN_FILE"] = ""
    token, tls = from_environment({**environ, **given})
    return BrokerClient(config.broker, config.timeout_s, token, tls)


def expand_by_user(file: str) -> str:
    """``~`` as the system knows it: HTCondor starts a hook as the job's owner, with HOME as the
    daemons have it."""
    if not file.startswith("~/"):
        return file
    import pwd  # noqa: PLC0415 - few need it

    try:
        return pwd.getpwuid(os.getuid()).pw_dir + file[1:]
    except KeyError:  # in a container it may not know who that is
        return os.path.expanduser(file)  # noqa: PTH111 - Path's raises where there is no home
