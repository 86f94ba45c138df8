"""Certificates for tests of TLS."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """An authority of its own in a folder. All it certifies is valid for an hour."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject([name])
        self.file, _ = self._write(name, self._signed(self._name, self._key, ca=True), self._key)

    def issue(self, *names: str, hosts: Sequence[str] = (), valid: bool = True) -> tuple[str, str]:
        """Files with a certificate of these common names, or one that has expired; and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._signed(_subject(names), key, hosts, valid=valid)
        return self._write("-".join(names), signed, key)

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        hosts: Sequence[str] = (),
        ca: bool = False,
        valid: bool = True,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=2))
            .not_valid_after(now + timedelta(hours=1 if valid else -1))
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
        )
        if hosts:
            names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(h)) for h in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(
        self, stem: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> tuple[str, str]:
        pem = serialization.Encoding.PEM
        files = self._folder / f"{stem}.pem", self._folder / f"{stem}.key"
        files[0].write_bytes(certificate.public_bytes(pem))
        form = serialization.PrivateFormat.PKCS8
        files[1].write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
        return str(files[0]), str(files[1])


def _subject(names: Sequence[str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
