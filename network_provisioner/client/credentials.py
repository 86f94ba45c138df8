"""What a client shows a broker, and by what it knows it: from files, and from the environment.

    ADON_TOKEN_FILE              a file with the token; better than ADON_TOKEN, the token itself
    ADON_CA                      who signs the broker's certificate (default: the system's list)
    ADON_CERTIFICATE, ADON_KEY   our own certificate and its key, where the broker asks for one

All files but the token's are PEM. No command takes a token as an argument: arguments stand in the
list of processes, for everybody to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from network_provisioner.base.errors import InputError
from network_provisioner.base.private import read_secret
from network_provisioner.client.http1 import Tls

SHORTEST_TOKEN = 16  # characters: what a person could have thought up is refused


def from_environment(environ: Mapping[str, str]) -> tuple[str | None, Tls]:
    """Token and TLS as the environment has them. Raises InputError."""
    file = environ.get("ADON_TOKEN_FILE")
    token = read_token(Path(file)) if file else environ.get("ADON_TOKEN") or None
    names = ("ADON_CA", "ADON_CERTIFICATE", "ADON_KEY")
    return token, Tls(*(environ.get(name) or None for name in names))


def read_token(file: Path) -> str:
    """The token in a file. Raises InputError, which never quotes it."""
    token = read_secret(file, "a token").strip()
    if " " in token or not token.isascii():
        raise InputError(f"{file}: found something else, expected one line with a token")
    return long_enough(token, str(file))


def long_enough(token: str, what: str) -> str:
    """The token. Raises InputError for one that could be guessed."""
    if len(token) < SHORTEST_TOKEN:
        raise InputError(
            f"{what}: found a token of {len(token)} characters, expected at least "
            f"{SHORTEST_TOKEN} ('adon broker token new' makes one)"
        )
    return token


def common_name(certificate: Any) -> str | None:
    """The one common name of a verified certificate, as the ssl module gives it; else None."""
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else None
