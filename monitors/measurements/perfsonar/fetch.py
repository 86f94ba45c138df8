"""GET of JSON from an archive, with an end to time and size."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from monitors.measurements.perfsonar.data import Remote
from network_provisioner.errors import AdonError, InputError

_TIMEOUT_S = 30.0
_MOST_BYTES = 64 * 1024 * 1024

Fetch = Callable[[str], Any]
"""The JSON at a URL. Raises FetchError."""


class FetchError(AdonError):
    """An archive did not answer, or answered with something else than JSON."""


class RefusedError(FetchError):
    """An archive answered that it will not, or cannot, answer this."""


class TooLargeError(RefusedError):
    """An archive answered more than is taken at once."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirection could lead the token anywhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetch_of(remote: Remote) -> Fetch:
    """How to ask an archive. Raises InputError where its files cannot be read."""
    try:
        file: object = remote.ca
        context = ssl.create_default_context(cafile=remote.ca)
        file = remote.token_file
        token = remote.token_file.read_text().strip() if remote.token_file else ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"perfSONAR archive {remote.url}: {file}: {why}") from error
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect)
    headers = {"Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Token {token}"

    def fetch(url: str) -> Any:
        request = urllib.request.Request(url, headers=headers)
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as answer:
                body = answer.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(f"{url}: answered {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise FetchError(f"{url}: {error}") from error
        if len(body) > _MOST_BYTES:
            raise TooLargeError(f"{url}: answered more than {_MOST_BYTES} bytes")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise FetchError(f"{url}: answered no JSON: {error}") from error

    return fetch
