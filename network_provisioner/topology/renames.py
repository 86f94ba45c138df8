"""What is kept under the names of a network whose nodes or links have others now. Pure."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from network_provisioner.topology.graph import Topology

_KEYS = frozenset({"src", "dst", "site", "path", "link", "links", "element", "not_guaranteed"})


class Renames:
    """From the names before (the keys ``was``) to those of a topology. False where none changed."""

    def __init__(self, topology: Topology) -> None:
        self.names = topology.renamed
        before = {name: was for was, name in self.names.items()}
        self._texts = dict(self.names)
        for link in topology.whole_links:
            for hop, sign in product(link.hops, "->"):
                self._texts[sign.join(before.get(end, end) for end in hop)] = sign.join(hop)
        words = sorted(map(re.escape, self.names), key=len, reverse=True)
        self._via = re.compile(f"(?<![^-])(?:{'|'.join(words)})(?![^-])")

    def __bool__(self) -> bool:
        return bool(self.names)

    def in_body(self, body: Any, key: str = "") -> Any:
        """A transit or a document with the names of now; what people wrote stays."""
        if isinstance(body, dict):
            return {name: self.in_body(value, name) for name, value in body.items()}
        if isinstance(body, list | tuple):
            return [self.in_body(value, key) for value in body]
        return self._texts.get(body, body) if isinstance(body, str) and key in _KEYS else body

    def in_subject(self, subject: str) -> str:
        """Of a measurement: ``SITE`` or ``TRANSFORMATION@SITE``; ``SRC>DST``, perhaps with ``/``
        and the nodes between them, joined by ``-``."""
        what, at, place = subject.rpartition("@")
        ends, slash, rest = place.partition("/")
        ends = ">".join(self.names.get(end, end) for end in ends.split(">"))
        if ">" in ends:
            rest = self._via.sub(lambda match: self.names[match[0]], rest)
        return what + at + ends + slash + rest
