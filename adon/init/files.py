"""The files that ``adon init`` writes, all at once: adon.yml, tokens, a certificate, a folder for
each agent. What is there is kept, but for what changed in adon.yml and the agents' broker."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

from adon.config.yamlfile import read_yaml
from adon.config.yamltext import with_value
from adon.init.plan import agent_file
from network_provisioner.access import Role, hash_of, new_token
from network_provisioner.base.errors import InputError
from network_provisioner.client.credentials import read_token
from pegasus_hooks.install.edits import FileEdit, read

CERTIFICATE, KEY, ENGINEER = "broker.pem", "broker.key", "engineer.token"
_LOCAL = Path("/usr/share/doc/adon/local-switches.conf")
_UNIT = Path("/etc/systemd/system/adon-broker.service.d")
_DAYS = "825"
_SECRET = 0o600
_OPENSSL_S = 60.0


def config_edits(file: Path, text: str, clock: Callable[[], float] = time.time) -> list[FileEdit]:
    """The configuration, after a copy of one that is there and says something else."""
    before = read(file)
    edit = FileEdit(file, before, text.encode())
    if before is None or not edit.needed:
        return [edit]
    copy = file.with_name(f"{file.name}.{time.strftime('%Y%m%d-%H%M%S', time.gmtime(clock()))}")
    return [FileEdit(copy, read(copy), before, f"a copy of {file.name} as it was", _SECRET), edit]


def unit_edits(devices: bool) -> list[FileEdit]:
    """What the package's broker needs where it shapes ``devices`` of its own machine; none where
    there is no package."""
    settings = read(_LOCAL)
    if not devices or settings is None:
        return []
    file = _UNIT / _LOCAL.name
    return [FileEdit(file, read(file), settings)]


def secret_edits(
    folder: Path, sites: Iterable[str], url: str, host: str, state: str = ""
) -> tuple[list[FileEdit], list[dict[str, Any]]]:
    """Token of an engineer, certificate for ``host``, a folder for each site's agent, which keeps
    its files in ``state``; and the entries of the tokens in adon.yml. Raises InputError."""
    edits, entries = [], []

    def token(file: Path, name: str, role: Role) -> None:
        before = read(file)
        secret = new_token() if before is None else read_token(file)
        after = f"{secret}\n".encode() if before is None else before
        edits.append(FileEdit(file, before, after, f"the token of {name}", _SECRET))
        entries.append({"name": name, "role": str(role), "sha256": hash_of(secret)})

    token(folder / ENGINEER, "engineer", Role.ENGINEER)
    pem, key = read(folder / CERTIFICATE), read(folder / KEY)
    made = (pem, key) if pem is not None and key is not None else new_certificate(host)
    edits.append(FileEdit(folder / CERTIFICATE, pem, made[0], f"a certificate for {host}"))
    edits.append(FileEdit(folder / KEY, key, made[1], "its key", _SECRET))
    for site in sites:
        own = folder / "agents" / quote(site, safe="")
        token(own / "token", site, Role.AGENT)
        edits.append(_agent_edit(own / "agent.yml", site, url, state))
        copy = own / CERTIFICATE
        edits.append(FileEdit(copy, read(copy), made[0], f"a copy of {CERTIFICATE}"))
    return edits, entries


def _agent_edit(file: Path, site: str, url: str, state: str) -> FileEdit:
    before = read(file)
    if before is None:
        return FileEdit(file, None, agent_file(site, url, state).encode())
    data, text = read_yaml(file), before.decode()
    if isinstance(data, dict) and data.get("broker") != url:
        text = with_value(text, ["broker"], url)
    return FileEdit(file, before, text.encode())


def new_certificate(host: str) -> tuple[bytes, bytes]:
    """A certificate that signs itself, for a host name or address, and its key, as PEM. Raises
    InputError."""
    try:
        kind = f"IP:{ip_address(host)}"
    except ValueError:
        kind = f"DNS:{host}"
    with tempfile.TemporaryDirectory() as folder:
        pem, key = Path(folder) / CERTIFICATE, Path(folder) / KEY
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ]
        command += ["-nodes", "-days", _DAYS, "-subj", "/CN=adon broker"]
        command += ["-addext", f"subjectAltName={kind}", "-out", str(pem), "-keyout", str(key)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_OPENSSL_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"openssl: {error}, expected openssl for the certificate") from None
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["it failed"])[-1]
            raise InputError(f"openssl: no certificate for {host}: {why}")
        return pem.read_bytes(), key.read_bytes()
