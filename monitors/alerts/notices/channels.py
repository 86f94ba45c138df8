"""How people are told: a web hook, or a command that sends mail."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass
from email.message import Message
from typing import IO
from urllib.parse import quote

from monitors.alerts.notices.targets import Notice, Target, headers_of
from network_provisioner.base.errors import InputError

_HOOK_S = 10.0
_PLAIN = "".join(map(chr, range(32, 127)))  # what a header takes
_COMMAND_S = 60.0
_LATER = frozenset({408, 425, 429})  # what is no refusal for good
_MOST_LATER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of one try. ``again``: another may succeed, after ``later_s`` seconds or more."""

    ok: bool
    why: str = ""
    again: bool = True
    later_s: float = 0.0


def deliver(target: Target, notice: Notice, key: str) -> Delivery:
    """Try once. ``key`` is the same for each try of the same notice. Never raises."""
    return _ran(target, notice, key) if target.command else _posted(target, notice, key)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirection could lead the headers, which may be secret, anywhere."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        return None


def _posted(target: Target, notice: Notice, key: str) -> Delivery:
    """As JSON. A receiver that takes care of ``Idempotency-Key`` shows it once, even where its
    answer to the first try was lost."""
    body = asdict(notice) | {"key": key}
    try:
        headers = headers_of(target) | {
            "Content-Type": "application/json",
            "Idempotency-Key": quote(key, safe=_PLAIN),
            "User-Agent": "adon",
        }
        data = json.dumps(body).encode()
        request = urllib.request.Request(target.webhook, data, headers, method="POST")
        opener = urllib.request.build_opener(_NoRedirect)
        with opener.open(request, timeout=_HOOK_S):
            return Delivery(True)
    except urllib.error.HTTPError as error:
        with error:
            return _refused(error)
    except InputError as error:
        return Delivery(False, str(error))
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        return Delivery(False, f"{type(error).__name__}: {reason}"[:300])


def _refused(error: urllib.error.HTTPError) -> Delivery:
    again = error.code >= 500 or error.code in _LATER
    later = 0.0
    if again:
        with suppress(ValueError, TypeError):
            later = min(max(float(error.headers.get("Retry-After", "0")), 0.0), _MOST_LATER_S)
    return Delivery(False, f"HTTP {error.code}", again, later)


def _ran(target: Target, notice: Notice, key: str) -> Delivery:
    """The text is its standard input; kind, subject and key stand in its environment."""
    env = os.environ | {
        "ADON_NOTICE_KIND": notice.kind,
        "ADON_NOTICE_SUBJECT": notice.subject,
        "ADON_NOTICE_KEY": key,
    }
    try:
        process = subprocess.Popen(
            target.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, env=env, start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return Delivery(False, f"{target.command[0]}: {error}"[:300])
    try:
        _, complained = process.communicate(notice.text.encode(errors="replace"), _COMMAND_S)
    except subprocess.TimeoutExpired:
        return _ended_by_us(process, target)
    if process.returncode == 0:
        return Delivery(True)
    lines = complained.decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else "it said nothing"
    return Delivery(False, f"{target.command[0]}: exit code {process.returncode}: {last}"[:300])


def _ended_by_us(process: subprocess.Popen[bytes], target: Target) -> Delivery:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # a session of its own: all that it started
    process.communicate()
    return Delivery(False, f"{target.command[0]}: still running after {_COMMAND_S:g} s")
