"""One transit on the new configuration: a broker is started for it, a path granted and released.

Where the configuration's state is not there yet, none is left: the service may run as another user.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import getpid
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from adon.config.sections import Config
from adon.config.yamlfile import read_yaml
from adon.init.files import ENGINEER
from network_provisioner.base.errors import AdonError, BrokerError
from network_provisioner.base.model import ON_SWITCHES, Transit, TransitRequest
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.credentials import read_token
from network_provisioner.client.http1 import Tls
from network_provisioner.topology.data import topology_from_dict

_STARTED_WITHIN_S = 120.0
_ANSWER_S = 60.0
_LOOK_S = 0.2
_ENDED_WITHIN_S = 30.0


def try_transit(file: Path, config: Config) -> Transit:
    """The transit between the first two sites, which is released again. Raises AdonError."""
    with TemporaryDirectory() as folder:
        if Path(config.broker.state).exists():  # what it says is on the switches stays there
            return _try(file, file, config)
        data = read_yaml(file)
        data["broker"] |= {key: f"{folder}/{key}.sqlite" for key in ("state", "archive")}
        if tls := config.security.tls:
            data["security"]["tls"] = {"certificate": tls.certificate, "key": tls.key}
        trial = Path(folder) / file.name
        trial.write_text(yaml.safe_dump(data), encoding="utf-8")
        return _try(file, trial, config)


def _try(file: Path, used: Path, config: Config) -> Transit:
    src, dst = topology_from_dict(config.topology).sites[:2]
    secure, token, ca = config.security.tls, None, None
    if secure is not None:
        token, ca = read_token(file.parent / ENGINEER), secure.certificate
    client = BrokerClient(config.broker_url, _ANSWER_S, token, Tls(ca))
    with _broker(used, client):
        request = TransitRequest(f"init-{time.time_ns()}", src, dst, lease_s=_ANSWER_S)
        transit = client.request(request)
        client.release(transit.id)
    if transit.state not in ON_SWITCHES:
        raise AdonError(f"transit {src} to {dst}: {transit.state}: {transit.reason}")
    return transit


@contextmanager
def _broker(file: Path, client: BrokerClient) -> Iterator[None]:
    """Runs while its switches and it are there."""
    command = [sys.executable, "-m", "adon.service.serve", "--config", str(file)]
    process = subprocess.Popen(
        [*command, "--tied-to", str(getpid())],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        until = time.monotonic() + _STARTED_WITHIN_S
        while True:
            try:
                client.health()
                break
            except BrokerError as error:
                if process.poll() is not None:
                    why = (process.communicate()[1].strip().splitlines() or ["it ended"])[-1]
                    raise AdonError(f"the broker did not start: {why}") from None
                if time.monotonic() > until:
                    raise AdonError(f"the broker does not answer: {error}") from None
            time.sleep(_LOOK_S)
        yield
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
