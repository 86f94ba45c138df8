"""What is sent to the broker, and what it answers, as the published description shows them.

Sizes are bytes, rates bits per second, times seconds (Unix seconds where an instant is meant).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from inspect import cleandoc
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from network_provisioner.api.problems import Error
from network_provisioner.base import model
from network_provisioner.base.flows import MAX_FLOWS, Flow, flow_from_dict
from network_provisioner.base.model import Service, TransitRequest
from network_provisioner.base.schema import INTEGRAL

_LARGEST = 2**63 - 1
MOST_REQUESTS = 256  # together: a job moves files between far fewer pairs of sites
MOST = 1e18  # of any rate or time: far beyond all there are, and no overflow anywhere
Count = Annotated[int, Field(ge=0, le=_LARGEST), INTEGRAL]
Seconds = Annotated[float, Field(gt=0, le=MOST)]
Instant = Annotated[float, Field(ge=0, le=MOST)]
Rate = Annotated[float, Field(ge=-MOST, le=MOST)]
Text = Annotated[str, Field(max_length=1000)]
Port = Annotated[int, Field(ge=1, le=65535), INTEGRAL]
Ports = Port | Annotated[list[Port], Field(min_length=2, max_length=2)]


class Body(BaseModel):
    """What is sent: every key is known, every value of its own type. Null is as if the key were not
    there, for that is how many libraries write what nobody set."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict) or None not in data.values():
            return data
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {k: v for k, v in data.items() if v is not None or k not in optional}


class FlowBody(Body):
    """Packets from source to destination with these ports, and the answers to them. A port, or the
    first and last of a range; at least one of both."""

    protocol: Literal["tcp", "udp"] = "tcp"
    src_ports: Ports | None = None
    dst_ports: Ports | None = None


Flows = Annotated[list[FlowBody], Field(max_length=MAX_FLOWS)]


_TERMS: dict[str, Any] = {
    "id": Annotated[
        str,
        Field(
            pattern=r"^[!-~]{1,200}$",
            description="chosen by the caller; the same id gives the same transit",
            examples=["my-transfer-1"],
        ),
    ],
    "src": Annotated[Text, Field(examples=["mu"])],
    "dst": Annotated[Text, Field(examples=["tacc"])],
    "size_bytes": Count | None,
    "min_bps": Annotated[Rate | None, Field(description="default: the template's QSpec")],
    "max_bps": Annotated[
        Rate | None,
        Field(description="default: the template's RSpec, else all that the path has"),
    ],
    "lease_s": Seconds | None,
    "retry": Count,
    "start": Annotated[Instant | None, Field(description="default: now")],
    "end": Annotated[Instant | None, Field(description="default: as long as it takes")],
    "priority": Annotated[
        Annotated[int, Field(ge=0, le=1_000_000), INTEGRAL] | None,
        Field(description="at most, and by default, the template's"),
    ],
    "user": Annotated[Text, Field(description="default: the name of the token")],
    "flows": Annotated[Flows, Field(description="empty: all packets between the two sites")],
    "src_host": Annotated[Text, Field(description="by name or address, with dst_host; empty: all")],
    "ports_at": Annotated[
        Literal["", "src", "dst", "client", "seen"],
        Field(
            description="which end's tool can use ports that are given to it, in the answer's "
            "ports; client: it has two servers move the bytes; seen: none can, but the caller "
            "reports the flows as its connections open",
        ),
    ],
    "best_effort": Annotated[
        Text,
        Field(description="why the caller does without a path: recorded, nothing is reserved"),
    ],
}
"""What the fields of a request may be; a text where nothing else is said."""


def _asked() -> Iterator[tuple[str, Any]]:
    for each in fields(TransitRequest):
        usual = [] if each.name == "flows" else ... if each.default is MISSING else each.default
        yield each.name, (_TERMS.get(each.name, Text), usual)


_Asked: Any = create_model("_Asked", __base__=Body, **dict(_asked()))


class TransitBody(_Asked):  # type: ignore[misc]
    """A request for a path."""

    def request(self, user: str, project: str) -> TransitRequest:
        """As the broker takes it. Raises InputError for flows without a port."""
        given = self.model_dump(exclude={"flows", "user", "project"})
        return TransitRequest(**given, user=user, project=project, flows=flows_of(self.flows))


class AskBody(Body):
    """Several requests."""

    requests: Annotated[list[TransitBody], Field(max_length=MOST_REQUESTS)]


class FlowsBody(Body):
    """Which packets a transit carries."""

    flows: Flows


def flows_of(bodies: list[FlowBody]) -> tuple[Flow, ...]:
    """Raises InputError."""
    return tuple(
        flow_from_dict(body.model_dump(), f"flows.{number}") for number, body in enumerate(bodies)
    )


class ReleaseBody(Body):
    """What the transfer moved, how it ended (``success`` or a word of the caller's), and what it
    used; ``retries`` are attempts that failed, ``files`` how many it moved, ``note`` says why it
    was slow."""

    bytes: Count = 0
    seconds: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    outcome: Text = ""
    streams: Count = 0
    buffer_bytes: Count = 0
    threads: Count = 0
    retries: Count = 0
    files: Count = 0
    note: Text = ""


class ProgressBody(Body):
    """What a transfer has moved until now."""

    bytes: Count


class RenewBody(Body):
    """How long the lease shall last from now."""

    lease_s: Seconds


class ChangeBody(Body):
    """Other rates; what is left out stays."""

    min_bps: Rate | None = None
    max_bps: Rate | None = None


class ShiftBody(Body):
    """From when to when it is needed instead, and how much is moved where that is known better."""

    start: Instant
    end: Instant
    size_bytes: Count | None = None


class Answer(BaseModel):
    """An answer: more may be in it in a later version."""

    model_config = ConfigDict(extra="allow")


def _published() -> Iterator[tuple[str, Any]]:
    """What a transit is published with: names, each with its type and default."""
    for name, place in model.PUBLISHED.items():
        owner: Any = model.Transit
        *parts, attribute = place.split(".")
        for part in parts:
            owner = get_type_hints(owner)[part]
        kind = get_type_hints(owner)[attribute]
        usual = owner.__dataclass_fields__[attribute].default
        first = (*get_args(kind), kind)[0]
        is_plain = isinstance(first, type) and issubclass(first, str | int | float)
        if get_origin(kind) in (list, tuple):
            usual = Field(default_factory=list)
            if not is_plain or get_origin(kind) is tuple:
                kind = list[str] if is_plain else list[dict[str, Any]]
        elif not is_plain:
            kind, usual = dict[str, Any], Field(default_factory=dict)
        yield name, (kind, ... if usual is MISSING else usual)


_Published: Any = create_model("_Published", **dict(_published()))


class Transit(_Published):  # type: ignore[misc]
    __doc__ = "\n\n".join(
        cleandoc(kind.__doc__ or "")
        for kind in (model.Transit, model.AgreedRequest, model.TransitGrant, model.TransitUsage)
    )


class TransitAnswer(Answer):
    """What became of one of several requests: ``transit`` or ``error``, and how the template wants
    its transfer served."""

    transit: Transit | None
    error: Error | None
    service: Service


class AskAnswer(Answer):
    """In the order of the requests."""

    answers: list[TransitAnswer]
