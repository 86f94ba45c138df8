"""``postgresql://user@host/database``, or libpq's ``host=… user=… dbname=…``: where brokers share
their state, and how it is shown.

What else may stand in it is libpq's business (``sslmode``, ``passfile``, ``options`` …); here is
what can be said without a server, and what must never be said: the password.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from network_provisioner.base.errors import InputError

_URL = re.compile(
    r"(?P<scheme>postgres(?:ql)?)://(?P<at>[^/?]*)(?P<path>/[^?]*)?(?:\?(?P<query>.*))?\Z"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:@\s]*)(?::\d{0,5})?\Z")
_EXPECTED = "expected postgresql://USER@HOST:PORT/DATABASE"
_SHOWN = ("service", "host", "hostaddr", "port", "user", "dbname")  # the others may be secret
_KEYWORD = re.compile(r"\s*[a-z_]+\s*=")
_ONE_OF_LIBPQ = re.compile(rf"(?:\A|\s)(?:{'|'.join(_SHOWN)}|password|passfile)\s*=")
_SETTING = re.compile(r"\s*([a-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|(?!')(?:[^\s\\]|\\.)*)(?:\s+|\Z)")


def is_database_url(where: str | Path) -> bool:
    """Whether ``where`` means a database and not a file."""
    return isinstance(where, str) and (
        where.startswith(("postgresql://", "postgres://")) or _has_keywords(where)
    )


def _has_keywords(where: str) -> bool:
    return bool(_KEYWORD.match(where) and _ONE_OF_LIBPQ.search(where))


def place(where: str, folder: Path = Path()) -> str | Path:
    """A database's URL (or SQLite's ``:memory:``) as it is, or a file's path, which counts from
    ``folder``."""
    return where if is_database_url(where) or where == ":memory:" else folder / where


def check_state(where: str) -> None:
    """Raises InputError for what is neither the path of a file nor the URL of a database."""
    scheme, mark, _ = where.partition("://")
    if is_database_url(where):
        check_database_url(where)
    elif mark and _SCHEME.fullmatch(scheme):
        raise InputError(f"found the URL of something else ({scheme}:), {_EXPECTED} or a file")
    elif not where.strip() or "\0" in where:
        raise InputError(f"found {where!r}, {_EXPECTED} or a file")


def check_database_url(url: str) -> None:
    """Raises InputError, without the password, for what cannot be the URL of a database."""
    if _has_keywords(url):
        if _settings(url) is None:
            raise InputError(
                f"found settings of PostgreSQL that cannot be taken apart, {_EXPECTED} or "
                "host=HOST user=USER dbname=DATABASE, with values that have blanks in quotes"
            )
        return
    parts = _parts(url)
    if parts is None:
        raise InputError(
            f"found a PostgreSQL URL that cannot be taken apart, {_EXPECTED}, with blanks, @, :, / "
            "and ? in user and password percent-encoded"
        )
    for port in re.findall(r":(\d+)(?=,|\Z)", _hosts(parts)):
        if not 0 < int(port) < 65536:
            raise InputError(f"found the port {port} in a PostgreSQL URL, {_EXPECTED}")


def shown_url(url: str) -> str:
    """The URL as messages may show it: without password, and without most of its options."""
    if _has_keywords(url):
        settings = _settings(url) or {}
        return " ".join(f"{k}={settings[k]}" for k in _SHOWN if k in settings) or "postgresql://…"
    parts = _parts(url)
    if parts is None:
        return "postgresql://…"
    user, at, _ = parts["at"].rpartition("@")
    options = [o for o in parts["query"].split("&") if o.partition("=")[0] in _SHOWN]
    query = f"?{'&'.join(options)}" if options else ""
    return f"postgresql://{user.partition(':')[0]}{at}{_hosts(parts)}{parts['path']}{query}"


def database_name(url: str) -> str:
    """The database's name in its URL, "" where it is not there."""
    if _has_keywords(url):
        return (_settings(url) or {}).get("dbname", "")
    return urlsplit(url).path


def _settings(where: str) -> dict[str, str] | None:
    """The values of libpq's keywords as they are written, None for what is no list of them."""
    settings, at = {}, 0
    while at < len(where):
        match = _SETTING.match(where, at)
        if match is None or not where.isprintable():
            return None
        settings[match[1]], at = match[2], match.end()
    return settings


def _hosts(parts: dict[str, str]) -> str:
    return parts["at"].rpartition("@")[2]


def _parts(url: str) -> dict[str, str] | None:
    """The parts of a URL of which it is clear where the password ends, else None."""
    match = _URL.match(url)
    if match is None or not url.isprintable() or " " in url:
        return None
    parts = match.groupdict(default="")
    ends = parts["at"].count("@")
    if not all(map(_HOST.match, _hosts(parts).split(","))):
        return None
    # An @ behind the first / or ? may be the one that should have ended the password.
    if ends > 1 or "@" in parts["path"] or (not ends and "@" in parts["query"]):
        return None
    return parts
