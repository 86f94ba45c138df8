"""From ``security:`` in ``adon.yml`` to keys, TLS, and the decision whether to listen at all."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from adon.config.adon_yml import load_config
from adon.config.sections import Config, TlsConfig, TokenConfig, split_address
from network_provisioner.access import Federation, Key, Keyring, Principal, Role, hash_of
from network_provisioner.base.errors import AdonError, InputError, MissingError
from network_provisioner.client.credentials import long_enough, read_token
from network_provisioner.issuers import Issuer
from network_provisioner.topology.data import topology_from_dict

if TYPE_CHECKING:
    import ssl

    from network_provisioner.api.forward import Trust

log = logging.getLogger(__name__)


def keyring_of(config: Config, clock: Callable[[], float] = time.time) -> Keyring:
    """All keys of the configuration, tokens read from their files. Raises InputError, and
    MissingError if issuers are named and there is no PyJWT."""
    ring = Keyring((), clock)
    _fill(ring, config)
    return ring


def _fill(ring: Keyring, config: Config, strict: bool = True) -> None:
    """``strict``: a token that cannot be read is an InputError; else it is ignored."""
    keys = []
    for entry in config.security.tokens:
        try:
            keys.append(_key(entry, config.security.tls))
        except InputError as error:
            if strict:
                raise
            log.warning("the token of %r is no longer valid: %s", entry.name, error)
    if config.broker.token is not None:
        # Who has it may do everything, for any user.
        keys.append(Key(Principal("", Role.ENGINEER), hash_of(config.broker.token)))
    for issuer in config.security.issuers if strict else ():
        issuer.client_secret()
    issuers = _federation(config.security.issuers) if config.security.issuers else None
    try:
        ring.replace(keys, issuers)
    except InputError as error:
        raise InputError(f"security.tokens: {error}") from None


class LiveKeyring(Keyring):
    """The keys of ``adon.yml`` as it is now: what it and its token files say counts from the next
    request on. Where it cannot be used, that is logged, and all is as it was; a token file that
    cannot be used opens nothing."""

    def __init__(self, file: Path, config: Config, clock: Callable[[], float] = time.time) -> None:
        """``config`` is what ``file`` says at the start. Raises as :func:`keyring_of`."""
        super().__init__((), clock)
        self._file, self._lock = file, threading.Lock()
        self._seen = {file: _state(file)}
        self._take(config, strict=True)

    def recognise(self, token: str | None, certificate: str | None) -> Principal:
        """See :meth:`Keyring.recognise`."""
        with self._lock:
            seen = {file: _state(file) for file in self._seen}
            if seen != self._seen:
                self._seen = seen
                try:
                    self._take(load_config(self._file), strict=False)
                except AdonError as error:
                    log.warning("tokens and issuers stay as they were: %s", error)
        return super().recognise(token, certificate)

    def _take(self, config: Config, strict: bool) -> None:
        named = [Path(token.token_file) for token in config.security.tokens if token.token_file]
        # As they were before they are read.
        self._seen = {file: self._seen.get(file) or _state(file) for file in (self._file, *named)}
        _fill(self, config, strict)


def _state(file: Path) -> object:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _federation(issuers: Sequence[Issuer]) -> Federation:
    try:
        from network_provisioner.api.federation import Issuers  # noqa: PLC0415
    except ImportError as error:
        raise MissingError(
            f"security.issuers: {error}, expected PyJWT: pip install 'adon-wms[federation]'"
        ) from None
    return Issuers(issuers)


def _key(entry: TokenConfig, tls: TlsConfig | None) -> Key:
    what = f"security.tokens: {entry.name!r}"
    given = [k for k in ("token", "token_file", "sha256") if getattr(entry, k) is not None]
    if len(given) > 1:
        raise InputError(f"{what} has {' and '.join(given)}, expected one of them")
    if not given and (tls is None or tls.clients is None):
        raise InputError(
            f"{what} has no token, expected token_file or sha256 ('adon broker token new' makes "
            "one), or security.tls.clients for a certificate of that name"
        )
    digest = (entry.sha256 or "").lower()
    if entry.token is not None:
        digest = hash_of(long_enough(entry.token, what))
    elif entry.token_file is not None:
        digest = hash_of(read_token(Path(entry.token_file)))
    users = entry.users
    if users is None:
        users = [entry.name] if entry.role is Role.RESEARCHER else "*"
    principal = Principal(
        entry.name,
        entry.role,
        None if "*" in users else frozenset(users),
        None if entry.projects is None else frozenset(entry.projects),
    )
    return Key(principal, digest, entry.expires)


def check_exposure(config: Config, keyring: Keyring) -> None:
    """Raises InputError if the service would be open to more than this machine, or a Science
    DMZ to requests of nobody in particular."""
    walled = [node.name for node in topology_from_dict(config.topology).nodes.values() if node.dmz]
    if walled and not keyring:
        raise InputError(
            f"site {walled[0]} is in a Science DMZ, which only known callers may open: "
            "found no security.tokens, expected them"
        )
    host, _ = split_address(config.broker.listen, "broker.listen")
    if is_loopback(host):
        return
    lacking = [
        name
        for name, there in (
            ("security.tokens", bool(keyring)),
            ("security.tls", config.security.tls is not None),
        )
        if not there
    ]
    if lacking:
        raise InputError(
            f"broker.listen: found {config.broker.listen}, which others can reach, without "
            f"{' and '.join(lacking)}; expected them (docs/security.md), or 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def own_host(config: Config) -> Callable[[str], bool]:
    """Whether a name in lower case is one of the service's own."""
    listen, _ = split_address(config.broker.listen, "broker.listen")
    names = {name.lower() for name in (listen, *config.broker.names)}
    return lambda name: is_loopback(name) or name in names


def tls_context(tls: TlsConfig) -> ssl.SSLContext:
    """TLS as configured. Raises InputError that names the file."""
    from network_provisioner.api.connection import server_context  # noqa: PLC0415

    _check_readable(tls, "certificate", "key", "clients")
    try:
        return server_context(tls.certificate, tls.key, tls.clients)
    except (OSError, ValueError) as error:
        files = ", ".join(f for f in (tls.certificate, tls.key, tls.clients) if f)
        raise InputError(
            f"security.tls: {files}: {error}, expected PEM files that belong together"
        ) from None


def _check_readable(tls: TlsConfig, *names: str) -> None:
    for name in names:
        file = getattr(tls, name)
        if file is not None:
            try:
                Path(file).read_bytes()
            except OSError as error:
                raise InputError(
                    f"security.tls.{name}: {file}: {error.strerror}, expected a PEM file"
                ) from None


def trust_of(tls: TlsConfig | None) -> Trust:
    """By what this broker and others on its database know each other. Raises InputError that names
    the file."""
    from network_provisioner.api.forward import Trust  # noqa: PLC0415

    if tls is None:
        return Trust()
    _check_readable(tls, "brokers")
    return Trust(tls.brokers, (tls.certificate, tls.key) if tls.clients else None)


def protection_text(config: Config, keyring: Keyring) -> str:
    """How the service is protected, as text."""
    tls = config.security.tls
    line = "no TLS" if tls is None else "TLS, clients by certificate" if tls.clients else "TLS"
    if keyring:
        issuers = "".join(f", issuer {issuer.issuer}" for issuer in config.security.issuers)
        return f"{line}, {len(keyring)} key{'' if len(keyring) == 1 else 's'}{issuers}"
    return f"{line}, no tokens: everybody on this machine may do everything"
