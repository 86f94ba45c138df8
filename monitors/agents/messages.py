"""What broker and agents tell each other, as values and as JSON.

An agent asks for its assignments (``GET /v1/agents/NAME/assignments``) and posts results
(``POST /v1/agents/NAME/results``). It names a nonce in the header ``Adon-Nonce``; the broker signs
its answer in ``Adon-Signature`` (:func:`signature`). So an agent knows that an answer comes from a
broker that knows its token, and is the answer to this very question.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from monitors.measurement import Measurement

Role = Literal["alone", "client", "server"]
"""``client`` begins, towards the ``server`` at the other end; ``alone`` needs nobody."""

NONCE, SIGNATURE = "Adon-Nonce", "Adon-Signature"


@dataclass(frozen=True, slots=True)
class Assignment:
    """One agent's part in one measurement.

    ``id`` is the measurement's, the same for both ends; ``at`` (Unix seconds) is when it starts,
    and it is over ``duration_s`` later, whatever happens. ``subject`` is what is measured
    (``mu>tacc``, or ``mu`` for a host), ``peer`` the address of the other end, ``port`` where its
    server listens. ``options`` are the tool's own.
    """

    id: str
    task: str
    tool: str
    role: Role
    subject: str
    at: float
    duration_s: float
    peer: str = ""
    port: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"options": dict(self.options)}


@dataclass(frozen=True, slots=True)
class Result:
    """What came of an assignment: ``measurements``, or why there are none (``error``).

    ``started`` and ``ended`` are Unix seconds by the agent's clock.
    """

    assignment: str
    task: str
    started: float
    ended: float
    measurements: tuple[Measurement, ...] = ()
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def signature(token_hash: str, nonce: str, body: bytes) -> str:
    """HMAC-SHA256, hexadecimal, of the nonce and a body, keyed with the token's SHA-256
    (hexadecimal, lower case), which agent and broker both know."""
    message = nonce.encode() + b"\n" + body
    return hmac.new(token_hash.lower().encode(), message, hashlib.sha256).hexdigest()
