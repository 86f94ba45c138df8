"""A small OpenID Connect provider: every visitor of its login page is ada, and led back at once."""

from __future__ import annotations

import hashlib
import json
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, quote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

CLIENT = "adon-dashboard"


class Provider:
    """What it signs with, and the challenge of each code that it gave."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.challenges: dict[str, str] = {}
        self.groups = ["soykb-members"]
        self.refuses = ""
        self.secret, self.methods = "", ["client_secret_basic"]

    def token(self) -> str:
        """ada's ID token."""
        now = time.time()
        claims = {"iss": self.url, "aud": CLIENT, "sub": "ada", "iat": now, "exp": now + 3600}
        return jwt.encode({**claims, "groups": self.groups}, self.key, "ES256")

    def answer(self, path: str) -> dict[str, Any] | None:
        """What it publishes."""
        key = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        about = {
            "issuer": self.url, "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/login", "token_endpoint": f"{self.url}/token",
            "token_endpoint_auth_methods_supported": self.methods,
        }  # fmt: skip
        return {"/.well-known/openid-configuration": about, "/keys": {"keys": [key]}}.get(path)

    def led_back(self, query: dict[str, str]) -> str:
        """Where a user goes from the login page."""
        back = {"state": query["state"]}
        if self.refuses:
            back["error"] = self.refuses
        else:
            assert (query["client_id"], query["code_challenge_method"]) == (CLIENT, "S256")
            back["code"] = f"code-{len(self.challenges)}"
            self.challenges[back["code"]] = query["code_challenge"]
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def exchanged(self, form: dict[str, str], basic: str = "") -> dict[str, str]:
        """The tokens for a code; each once, for who has the verifier, and the secret where there
        is one."""
        pair = f"{CLIENT}:{quote_plus(self.secret)}".encode()
        said = {
            "client_secret_basic": basic == f"Basic {b64encode(pair).decode()}",
            "client_secret_post": form.get("client_secret") == self.secret,
        }
        if self.secret and not said[self.methods[0]]:
            return {"error": "invalid_client"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = urlsafe_b64encode(digest).decode().rstrip("=")
        if self.challenges.pop(form["code"], "") != challenge or form["client_id"] != CLIENT:
            return {"error": "invalid_grant"}
        return {"access_token": "opaque", "id_token": self.token()}


@contextmanager
def provider() -> Iterator[Provider]:
    """One that serves, at a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/login":
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                self.send_response(302)
                self.send_header("Location", made.led_back(query))
                self.end_headers()
                return
            self.say(made.answer(url.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.say(
                made.exchanged(
                    {name: v[0] for name, v in parse_qs(body).items()},
                    self.headers.get("Authorization", ""),
                )
            )

        def say(self, answer: dict[str, Any] | None) -> None:
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Provider(f"http://127.0.0.1:{server.server_port}")
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


def issuer(made: Provider) -> dict[str, Any]:
    """Its entry in ``security.issuers``."""
    roles = [{"holds": ["soykb-members"], "role": "researcher"}]
    return {
        "issuer": made.url, "audience": ["https://broker.example.org"], "roles": roles,
        "suffix": "", "client": CLIENT,
    }  # fmt: skip
