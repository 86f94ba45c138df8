"""How streams between two agents begin, and how the bytes of a connection are cut up. Pure.

Each stream begins with what it is for, which the session's secret proves:

    length (2 bytes) · HMAC-SHA256 of the rest by the secret · JSON

and goes on, in both directions, with chunks; an empty one is the end of that direction:

    number (8 bytes) · length (4 bytes) · bytes

Chunks are numbered over all streams of a connection, and on one stream numbers only rise. So the
next chunk is always the first that has not been read on one of them: a receiver keeps order by
reading the others later, and needs no memory for it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from dataclasses import dataclass
from typing import Any, Self

from network_provisioner.relay.sessions import VERSION, Address

CHUNK = struct.Struct("!QI")
HEAD = struct.Struct("!H32s")


class HelloError(ConnectionError):
    """A stream begins with something else."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What a stream is for: number ``stream`` of ``streams`` that carry one ``connection`` (a
    random name, in hexadecimal) of a session, from a client to a server."""

    session: str
    connection: str
    client: Address
    server: Address
    stream: int
    streams: int

    def pack(self, secret: str) -> bytes:
        """As it is sent."""
        fields = [VERSION, self.session, self.connection, *self.client, *self.server]
        body = json.dumps([*fields, self.stream, self.streams]).encode()
        return HEAD.pack(len(body), _proof(secret, body)) + body

    @classmethod
    def unpack(cls, proof: bytes, body: bytes, secret: str) -> Self:
        """The inverse. Raises HelloError for what the secret does not prove, and for another
        version's."""
        if not hmac.compare_digest(proof, _proof(secret, body)):
            raise HelloError("a stream is not of its session")
        fields: list[Any] = json.loads(body)
        if fields[0] != VERSION:
            raise HelloError(f"a stream of version {fields[0]}, expected {VERSION}")
        _, session, connection, host, port, to, to_port, stream, streams = fields
        return cls(session, connection, (host, port), (to, to_port), stream, streams)


def _proof(secret: str, body: bytes) -> bytes:
    return hmac.digest(bytes.fromhex(secret), body, hashlib.sha256)
