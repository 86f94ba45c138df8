"""RESTCONF (RFC 8040) as a driver needs it: a few verbs, every failure one line, never for ever."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError, ReadTimeoutError

from network_provisioner.base.controller import ControllerError
from network_provisioner.base.errors import InputError, printable

_JSON = "application/yang-data+json"
# What says that something is not there: RFC 8040 §7 maps "data-missing" to 409.
_ABSENT = (404, 409)
# Far above any table; a controller that sends more is not answering what was asked.
_MOST_BYTES = 64 << 20
_QUOTED = 200


class RequestRefusedError(ControllerError):
    """The controller answered, and its answer is no. ``reason`` is what it says, or its status."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnknownUserError(ControllerError):
    """The controller does not know who asks."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where a controller is and who asks. ``ca_file`` is for https with a certificate of one's own.

    ``timeout_s`` is how long an answer may take to begin, and then to end.
    """

    url: str
    user: str
    password: str = field(repr=False)
    timeout_s: float = 10.0
    ca_file: str = ""

    def __post_init__(self) -> None:
        """Raises InputError."""
        try:
            parts = urlsplit(self.url)
            is_usable = parts.scheme in ("http", "https") and parts.hostname and not parts.query
        except ValueError:  # half of the brackets of an IPv6 address
            is_usable = False
        if not is_usable:
            raise InputError(
                f"controller.url: found {self.url!r}, expected http://HOST:PORT or https://…"
            )
        if not self.user:
            raise InputError("controller.user: found nothing, expected who asks the controller")
        if self.ca_file and not Path(self.ca_file).is_file():
            raise InputError(f"controller.ca: found no file {self.ca_file}, expected certificates")


class Restconf:
    """Requests below ``/rests``. Thread-safe; every method raises ControllerError only."""

    def __init__(self, what: str, access: Access) -> None:
        """``what`` is the controller as messages name it."""
        self._access = access
        self._base = access.url.rstrip("/") + "/rests"
        self.label = f"{what} at {access.url.rstrip('/')}"
        self._own = threading.local()

    def get(self, path: str) -> dict[str, Any] | None:
        """What is at ``path`` below ``/rests/data``; None where nothing is."""
        status, body = self._ask("GET", f"/data/{path}")
        if status in _ABSENT:
            return None
        if not isinstance(body, dict):
            raise self._wrong(f"GET {path}", "no JSON object")
        return body

    def put(self, path: str, body: dict[str, Any]) -> None:
        """Create or replace what is at ``path``."""
        status, answer = self._ask("PUT", f"/data/{path}", body)
        if status in _ABSENT:
            raise self._refused(f"PUT {path}", status, answer)

    def delete(self, path: str) -> bool:
        """Remove what is at ``path``; False where nothing was."""
        status, _ = self._ask("DELETE", f"/data/{path}")
        return status not in _ABSENT

    def call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run an operation, ``module:name``; its output, empty where it has none."""
        status, body = self._ask("POST", f"/operations/{operation}", {"input": arguments})
        if status in _ABSENT:
            raise self._refused(operation, status, body)
        if body is None:
            return {}
        output = body.get(f"{operation.partition(':')[0]}:output") if type(body) is dict else None
        if not isinstance(output, dict):
            raise self._wrong(operation, "no output")
        return output

    def _ask(self, verb: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Status, and the JSON of the answer or None for an empty one."""
        what = f"{verb} {path.partition('/')[2]}"
        deadline = time.monotonic() + self._access.timeout_s
        try:
            with self._session().request(
                verb,
                self._base + path,
                data=None if body is None else json.dumps(body),
                timeout=self._access.timeout_s,
                allow_redirects=False,
                stream=True,
                verify=self._access.ca_file or True,
            ) as answer:
                status = answer.status_code
                data = self._read(answer, deadline)
        except (requests.Timeout, ReadTimeoutError):  # the latter while a body is read
            raise self._late() from None
        except (requests.RequestException, HTTPError, OSError) as error:
            raise ControllerError(f"{self.label} cannot be asked: {_root(error)}") from error
        if status == 401:
            raise UnknownUserError(
                f"{self.label} does not let user {self._access.user!r} in, expected a user and "
                "password that it knows"
            )
        try:
            said = json.loads(data) if data.strip() else None
        except (ValueError, RecursionError):
            said = data
        if not (200 <= status < 300 or status in _ABSENT):
            raise self._refused(what, status, said)
        if status in _ABSENT and not isinstance(said, dict) and (said or verb != "DELETE"):
            # Some web server, or RESTCONF that has not started: nothing is known of the resource.
            raise self._refused(what, status, said)
        if isinstance(said, bytes):
            raise self._wrong(what, f"no JSON: {_text(said)}")
        return status, said

    def _read(self, answer: requests.Response, deadline: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        while part := answer.raw.read1(65536, decode_content=True):
            parts.append(part)
            size += len(part)
            if size > _MOST_BYTES:
                raise self._wrong("its answer", f"more than {_MOST_BYTES >> 20} MiB")
            if time.monotonic() > deadline:
                raise self._late()
        return b"".join(parts)

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._own, "session", None)
        if session is None:
            session = requests.Session()
            # No proxy, no .netrc: who administers a network says where its controller is.
            session.trust_env = False
            session.auth = (self._access.user, self._access.password)
            session.headers.update({"Accept": _JSON, "Content-Type": _JSON})
            self._own.session = session
        return session

    def _late(self) -> ControllerError:
        return ControllerError(f"{self.label} did not answer within {self._access.timeout_s:g} s")

    def _wrong(self, what: str, answer: str) -> ControllerError:
        return ControllerError(f"{self.label} answered {what} with {answer}")

    def _refused(self, what: str, status: int, answer: object) -> RequestRefusedError:
        status_text = f"status {status}"
        reason = _text(answer)
        whole = f"{status_text}: {reason}" if reason else status_text
        return RequestRefusedError(str(self._wrong(what, whole)), reason or status_text)


def _text(answer: object) -> str:
    """What an answer says, shortened, in one line: RFC 8040 §7.1 errors, or as it is."""
    text = ""
    if isinstance(answer, dict):
        errors = answer.get("errors")
        listed = errors.get("error") if isinstance(errors, dict) else None
        first = listed[0] if isinstance(listed, list) and listed else None
        text = str(first.get("error-message", "")) if isinstance(first, dict) else ""
    elif isinstance(answer, bytes):
        text = answer.decode(errors="replace")
    words = " ".join(text.split())
    return printable(words if len(words) <= _QUOTED else words[:_QUOTED] + "…")


def _root(error: BaseException) -> str:
    """The innermost reason; the layers around it only repeat the address."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return printable(" ".join(str(error).split())[:_QUOTED]) or type(error).__name__
