"""A program of the admin's enlarges the pool: it gets the demand as JSON on standard input.

    {"action": "enlarge",
     "demand": {"id", "slots", "until", "cores", "memory_mb", "bytes", "reason"}}
    {"action": "shrink", "id": "…"}
    {"action": "workers"}

It exits with 0 when it has done that, or had done so before: asking twice is asking once. To the
first and the last it may answer with the workers there are, as
``{"workers": [{"name", "demand", "slots", "until", "state"}], "note": "…"}``, or with nothing.
Leases are its own affair: after ``until`` (Unix seconds) nobody needs the workers any more.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from condor_plugins.pool.demand import RUNNING, Expanded, SlotDemand, Worker
from network_provisioner.base.errors import AdonError, MissingError


class CommandExpansion:
    """Calls ``command`` with a request on its standard input, for at most ``timeout_s`` each."""

    def __init__(self, command: Sequence[str], timeout_s: float = 60.0) -> None:
        self._command = list(command)
        self._timeout_s = timeout_s

    def enlarge(self, demand: SlotDemand) -> Expanded:
        """See :class:`condor_plugins.pool.demand.Expansion`. Raises AdonError."""
        answer = self._call({"action": "enlarge", "demand": demand.as_dict()})
        found = [w for w in self._workers(answer) if w.demand == demand.id]
        return Expanded(tuple(found), str(answer.get("note", "")))

    def shrink(self, demand_id: str) -> int:
        """The same; 0 where the program tells no workers."""
        answer = self._call({"action": "shrink", "id": demand_id})
        return sum(w.demand == demand_id for w in self._workers(answer))

    def workers(self) -> Sequence[Worker]:
        """The same."""
        return self._workers(self._call({"action": "workers"}))

    def _call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        program = self._command[0]
        try:
            done = subprocess.run(
                self._command,
                input=json.dumps(request) + "\n",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
                check=False,
            )
        except OSError as error:
            raise MissingError(f"{program}: {error.strerror}, expected a program to run") from error
        except subprocess.TimeoutExpired as error:
            raise AdonError(f"{program}: no answer within {self._timeout_s:g} s") from error
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            why = said[-1] if said else "it said nothing"
            raise AdonError(f"{program}: exit code {done.returncode}: {why}")
        if not done.stdout.strip():
            return {}
        try:
            answer = json.loads(done.stdout)
        except (ValueError, RecursionError):
            raise self._unexpected(done.stdout) from None
        if not isinstance(answer, dict):
            raise self._unexpected(done.stdout)
        return answer

    def _workers(self, answer: Mapping[str, Any]) -> list[Worker]:
        rows = answer.get("workers", [])
        try:
            return [
                Worker(
                    str(row["name"]),
                    str(row["demand"]),
                    int(row["slots"]),
                    float(row["until"]),
                    str(row.get("state", RUNNING)),
                )
                for row in rows
            ]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._unexpected(json.dumps(answer)) from None

    def _unexpected(self, text: str) -> AdonError:
        return AdonError(
            f"{self._command[0]}: found {' '.join(text.split())[:120]!r}, expected nothing or "
            '{"workers": [{"name", "demand", "slots", "until"}]}'
        )
