"""Who one is in an iRODS zone, and sessions there.

A URL is ``irods://[user@][host[:port]]/zone/path``; it never holds a password. What it leaves open
comes from the first ``irods_environment.json`` that is found: in the job's folder (HTCondor sends
plain input files before a plug-in runs), by ``IRODS_ENVIRONMENT_FILE``, in ``~/.irods``. The
password is that of ``.irodsA`` in the job's folder, of HTCondor's credd (``irods.use``, as plain
text or as JSON with ``access_token``), of the environment itself (``irods_password``, as for
pegasus-transfer), or of the usual ``.irodsA`` or the file that takes its place
(``IRODS_AUTHENTICATION_FILE``, ``irods_authentication_file``).
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from reprlib import repr as shown
from typing import Any
from urllib.parse import unquote, urlsplit

from irods import password_obfuscation
from irods.session import iRODSSession

from network_provisioner.base.account import home as home_of_user
from network_provisioner.base.errors import InputError

ENVIRONMENT, PASSWORD, TOKEN = "irods_environment.json", ".irodsA", "irods.use"
SILENCE_S = 30.0  # a connection that says nothing for so long is broken
_PASSWORD_KEY = "irods_password"  # where Pegasus has it
_PORT = 1247
_NUMBERS = ("_port", "_size", "_rounds", "_uid", "_seconds", "_time", "_threads", "_megabytes")
_SCHEMES = {"pam": "pam_password"}  # as servers since 4.3 call it
_FORM = "irods://[user@][host[:port]]/zone/path, with %3F for ? and %23 for #"


@dataclass(frozen=True, slots=True)
class IrodsUrl:
    """A data object or collection, ``path``, which begins with its zone; "" and 0 are left open."""

    path: str
    host: str = ""
    port: int = 0
    user: str = ""

    @property
    def zone(self) -> str:
        return self.path.split("/")[1]

    @property
    def place(self) -> IrodsUrl:
        """The zone's root there as that user: what one session serves."""
        return replace(self, path=f"/{self.zone}")


def parsed(url: str) -> IrodsUrl:
    """Raises InputError."""
    try:
        parts = urlsplit(url)
        host, port, user = parts.hostname or "", parts.port or 0, unquote(parts.username or "")
    except ValueError as error:
        raise InputError(f"a URL of iRODS: {error}, expected {_FORM}") from None
    if parts.password is not None:
        raise InputError(f"irods://{host}{parts.path}: found a password in the URL, expected none")
    path = posixpath.normpath("/" + unquote(parts.path).strip("/"))
    if parts.scheme != "irods" or path.count("/") < 2 or parts.query or parts.fragment:
        raise InputError(f"found the URL {url!r}, expected {_FORM}")
    return IrodsUrl(path, host, port, user)


def session(
    url: IrodsUrl, env: Mapping[str, str], folder: Path, silence_s: float = SILENCE_S
) -> iRODSSession:
    """A session for what the URL names, which connects with its first call; ``folder`` is the
    job's. Raises InputError if nothing says as whom."""
    return open_session(account(url, env, folder), silence_s)


def open_session(settings: Mapping[str, Any], silence_s: float = SILENCE_S) -> iRODSSession:
    """A session by what ``account`` found."""
    return iRODSSession(connection_timeout=silence_s, application_name="adon", **settings)


def account(url: IrodsUrl, env: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """The settings that iRODS's clients have, and a ``password``. Raises InputError."""
    home = _home(env)
    usual = Path(env.get("IRODS_ENVIRONMENT_FILE", home / ENVIRONMENT))
    files = [folder / ENVIRONMENT, usual, home / ENVIRONMENT]
    file = next((f for f in files if f.is_file()), None)
    settings = {"irods_port": _PORT, "irods_zone_name": url.zone}
    settings |= _environment(file) if file else {}
    url_settings = {"irods_host": url.host, "irods_port": url.port, "irods_user_name": url.user}
    settings |= {name: value for name, value in url_settings.items() if value}
    in_environment = settings.pop(_PASSWORD_KEY, "")
    for name in ("irods_host", "irods_user_name"):
        if not settings.get(name):
            where = file or f"no {ENVIRONMENT} in {folder} or {home}"
            raise InputError(
                f"{where}: found no {name} for {url.path}, expected it there or in {_FORM}"
            )
    named = env.get("IRODS_AUTHENTICATION_FILE") or settings.get("irods_authentication_file")
    usual = Path(str(named or home / PASSWORD))
    credentials = env.get("_CONDOR_CREDS")
    try:
        if (folder / PASSWORD).is_file():
            return settings | _stored(folder / PASSWORD, settings)
        if credentials and (Path(credentials) / TOKEN).is_file():
            return settings | {"password": _token((Path(credentials) / TOKEN).read_text().strip())}
        if in_environment:
            return settings | {"password": str(in_environment)}
        if usual.is_file():
            return settings | _stored(usual, settings)
    except (OSError, ValueError, IndexError) as error:
        raise InputError(f"the password of iRODS: {error}, expected one that can be read") from None
    user = settings["irods_user_name"]
    if settings.get("irods_authentication_scheme") == "gsi":
        if find_spec("gssapi") is None:
            raise InputError(
                f"{file}: found irods_authentication_scheme gsi, expected the Python package "
                f"gssapi for it, or a password in {PASSWORD}"
            )
    elif user != "anonymous":
        raise InputError(
            f"found no password of {user} in zone {settings['irods_zone_name']}, expected one of "
            f"{PASSWORD} among the job's input files, {usual} and HTCondor's token 'irods'"
        )
    return settings | {"password": ""}


def keep_password(password: str, env: Mapping[str, str]) -> None:
    """Keeps a password, scrambled, in ``IRODS_AUTHENTICATION_FILE``, else in ``~/.irods``. Raises
    InputError, OSError."""
    home = _home(env)
    environment = Path(env.get("IRODS_ENVIRONMENT_FILE", home / ENVIRONMENT))
    settings = _environment(environment) if environment.is_file() else {}
    file = Path(env.get("IRODS_AUTHENTICATION_FILE") or home / PASSWORD)
    file.touch(mode=0o600)
    file.write_text(password_obfuscation.encode(password, uid=_uid(settings)))


def _home(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME") or home_of_user()) / ".irods"


def _environment(file: Path) -> dict[str, Any]:
    try:
        settings = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: {error}, expected iRODS's settings in JSON") from None
    if not isinstance(settings, dict):
        raise InputError(f"{file}: found no object, expected iRODS's settings in JSON")
    for name in settings:
        if name.endswith(_NUMBERS):
            settings[name] = _number(settings[name], f"{file}: {name}")
    scheme = str(settings.get("irods_authentication_scheme", "native")).lower()
    settings["irods_authentication_scheme"] = _SCHEMES.get(scheme, scheme)
    return settings


def _number(value: object, what: str) -> int:
    """Some clients write numbers as text."""
    text = str(value).strip().removesuffix(".0")
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal()):
        raise InputError(f"{what} is {shown(value)}, expected a whole number")
    return int(text)


def _stored(file: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """What is stored is the server's own password, also after a login with another one."""
    return {
        "password": password_obfuscation.decode(file.read_text().strip(), _uid(settings)),
        "irods_authentication_scheme": "native",
    }


def _uid(settings: Mapping[str, Any]) -> int:
    return int(settings.get("irods_authentication_uid", os.getuid()))


def _token(text: str) -> str:
    try:
        return str(json.loads(text)["access_token"])
    except (ValueError, TypeError, KeyError):
        return text
