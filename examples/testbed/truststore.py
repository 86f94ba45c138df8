"""The certificates that this machine trusts, in the form that Java reads.

An unpacked Java brings none: Debian makes them when the package is configured.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from pathlib import Path

import certifi

from network_provisioner.base.errors import MissingError

PASSWORD = "changeit"  # guards against damage only; this is Java's own default
_SYSTEM = Path("/etc/ssl/certs/ca-certificates.crt")
_MAGIC, _VERSION, _TRUSTED = 0xFEEDFEED, 2, 2
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def write(target: Path) -> None:
    """Write a key store (type JKS) of the machine's certificates, or of certifi's where it has
    none. Raises MissingError if there are no certificates, OSError."""
    source = _SYSTEM if _SYSTEM.is_file() else Path(certifi.where())
    certificates = read_pem(source.read_text(encoding="utf-8", errors="replace"))
    if not certificates:
        raise MissingError(f"{source}: found no certificate, expected those that are trusted")
    target.write_bytes(key_store(certificates))


def read_pem(text: str) -> list[bytes]:
    """The certificates of a PEM file, in DER."""
    blocks = (part.partition(_END)[0] for part in text.split(_BEGIN)[1:])
    return [ssl.PEM_cert_to_DER_cert(_BEGIN + block + _END) for block in blocks]


def key_store(certificates: list[bytes]) -> bytes:
    """A JKS of trusted certificates: the format of ``sun.security.provider.JavaKeyStore``."""
    data = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        data += struct.pack(">I", _TRUSTED) + _text(str(number)) + struct.pack(">Q", 0)
        data += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    seal = PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + data
    return data + hashlib.sha1(seal).digest()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
