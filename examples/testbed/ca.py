"""A certificate authority of the testbed's own, for GridFTP's security (GSI, RFC 3820).

::

    <directory>/certificates/<hash>.0, <hash>.signing_policy   X509_CERT_DIR
                host/<site>.pem, <site>.key                    one per data transfer node
                user.pem                                       X509_USER_PROXY: certificate and key
                gridmap                                        the user's name -> local account

Made by ``openssl`` once per directory and kept; made anew when its end comes near or what it has to
certify has changed. The keys never leave the directory, which only its owner may read.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.testbed.procs import run
from network_provisioner.base.errors import AdonError

_ORGANISATION = "/O=ADON testbed"
_CA_NAME = f"{_ORGANISATION}/CN=Certificate authority"
_USER_NAME = f"{_ORGANISATION}/CN=Workflow"
_VALID_DAYS = 30
_RENEW_S = 3 * 86400
# Elliptic keys are made in no time. User and authority must be RSA: at each login Globus makes a
# proxy key, RSA of as many bits as the user's, and signs it as the user's certificate was signed.
_ELLIPTIC = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
_RSA = ("rsa:2048",)
_LAYOUT = 1  # counts up when what is in the directory changes


@dataclass(frozen=True, slots=True)
class Authority:
    """A finished directory."""

    directory: Path

    @property
    def certificates(self) -> Path:
        """What X509_CERT_DIR must be."""
        return self.directory / "certificates"

    @property
    def user(self) -> Path:
        """What X509_USER_PROXY must be."""
        return self.directory / "user.pem"

    @property
    def gridmap(self) -> Path:
        """Which local account the user is."""
        return self.directory / "gridmap"

    def host_certificate(self, site: str) -> Path:
        """Certificate of a site's data transfer node."""
        return self.directory / "host" / f"{site}.pem"

    def host_key(self, site: str) -> Path:
        """Key of a site's data transfer node."""
        return self.directory / "host" / f"{site}.key"


def ensure(directory: Path, hosts: Mapping[str, Sequence[str]], account: str) -> Authority:
    """The authority in ``directory``; made where it is missing, old or for other hosts.

    ``hosts``: for each site the names its certificate is for; ``account``: the local user that the
    workflow's credential is mapped to. Raises MissingError without openssl, AdonError if it
    fails.
    """
    authority = Authority(directory)
    wanted = json.dumps(
        {"layout": _LAYOUT, "hosts": {k: list(v) for k, v in hosts.items()}, "account": account},
        sort_keys=True,
    )
    if _still_good(authority, wanted):
        return authority
    directory.parent.mkdir(parents=True, exist_ok=True)
    # Built beside and renamed, so that a directory that is there is whole. mkdtemp makes it 0700.
    building = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        _build(Authority(building), hosts, account)
        (building / "made-for.json").write_text(wanted, encoding="utf-8")
        if directory.exists():
            shutil.rmtree(directory)
        building.rename(directory)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return authority


def _still_good(authority: Authority, wanted: str) -> bool:
    made_for = authority.directory / "made-for.json"
    if not made_for.exists() or made_for.read_text(encoding="utf-8") != wanted:
        return False
    try:
        run(["openssl", "x509", "-in", str(authority.user), "-noout", "-checkend", str(_RENEW_S)])
    except AdonError:
        return False
    return True


def _build(authority: Authority, hosts: Mapping[str, Sequence[str]], account: str) -> None:
    authority.certificates.mkdir()
    (authority.directory / "host").mkdir()
    ca = authority.directory / "ca.pem"
    ca_key = authority.directory / "ca.key"
    _openssl(
        "req", "-x509", "-newkey", *_RSA, "-nodes", "-sha256", "-keyout", ca_key,
        "-subj", _CA_NAME, "-days", str(_VALID_DAYS), "-out", ca,
        "-addext", "basicConstraints=critical,CA:TRUE",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )  # fmt: skip
    for site, names in hosts.items():
        _sign(
            authority,
            f"{_ORGANISATION}/CN={names[0]}",
            authority.host_certificate(site),
            authority.host_key(site),
            "subjectAltName=" + ",".join(f"DNS:{n}" for n in names),
            "extendedKeyUsage=serverAuth,clientAuth",
        )
    certificate = authority.directory / "user-certificate.pem"
    key = authority.directory / "user.key"
    _sign(authority, _USER_NAME, certificate, key, "extendedKeyUsage=clientAuth", kind=_RSA)
    # One file with certificate and key, as a proxy certificate comes: tools take it for one, and
    # refuse it where others may read it.
    authority.user.touch(mode=0o600)
    authority.user.write_text(
        certificate.read_text(encoding="ascii") + key.read_text(encoding="ascii"), encoding="ascii"
    )
    name = run(["openssl", "x509", "-in", str(ca), "-noout", "-hash"]).strip()
    shutil.copyfile(ca, authority.certificates / f"{name}.0")
    (authority.certificates / f"{name}.signing_policy").write_text(
        f"access_id_CA X509 '{_CA_NAME}'\n"
        "pos_rights globus CA:sign\n"
        f"cond_subjects globus '\"{_ORGANISATION}/*\"'\n",
        encoding="ascii",
    )
    authority.gridmap.write_text(f'"{_USER_NAME}" {account}\n', encoding="utf-8")


def _sign(
    authority: Authority,
    subject: str,
    certificate: Path,
    key: Path,
    *extensions: str,
    kind: Sequence[str] = _ELLIPTIC,
) -> None:
    """A key and a certificate for it, signed by the authority."""
    request, wanted = certificate.with_suffix(".csr"), certificate.with_suffix(".ext")
    wanted.write_text("\n".join(["basicConstraints=critical,CA:FALSE", *extensions]) + "\n")
    _openssl(
        "req", "-new", "-newkey", *kind, "-nodes", "-keyout", key, "-subj", subject,
        "-out", request,
    )  # fmt: skip
    _openssl(
        "x509", "-req", "-in", request, "-extfile", wanted, "-days", str(_VALID_DAYS),
        "-CA", authority.directory / "ca.pem", "-CAkey", authority.directory / "ca.key",
        "-CAcreateserial", "-sha256", "-out", certificate,
    )  # fmt: skip
    request.unlink()
    wanted.unlink()


def _openssl(*words: str | Path) -> None:
    run(["openssl", *map(str, words)])
