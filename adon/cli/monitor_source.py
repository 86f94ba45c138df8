"""Where ``adon monitor list|status|show|anomalies`` read: an archive, or a broker, which answer the
same."""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from adon.cli.archive import open_archive
from adon.cli.options import credentials
from monitors.archive.archive import Archive, Measurement
from monitors.workflows.analysis import READ, analyse
from monitors.workflows.overview import KnownWorkflows, Overview
from monitors.workflows.planned.submit_dir import submit_dir_of
from monitors.workflows.service import LOOK_S, Refresher
from network_provisioner.base.errors import AdonError, BrokerError, InputError, meant
from network_provisioner.client.broker import BrokerClient

_STUCK_AFTER_S = 1800.0
_TIMEOUT_S = 30.0
_REFRESH_S = 2.0  # as long as a broker waits
_SHORTEST = 4  # of the beginning of an id
_SHOWN = 5
MOST_LISTED = 100_000
_PAGE = 2000  # workflows that are asked for at a time

Rows = list[dict[str, Any]]
T = TypeVar("T")


class ArchiveSource:
    """Reads an archive, as the user who may read it; answers as the REST API does."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._known = KnownWorkflows(archive, time.time, _STUCK_AFTER_S)

    def workflows(
        self,
        limit: int = MOST_LISTED,
        user: str | None = None,
        state: str | None = None,
        since: float = 0.0,
        roots: bool = False,
    ) -> Iterator[Rows]:
        """Pages of ``GET /v1/workflows``, at most ``limit`` workflows."""
        known = [
            workflow
            for workflow in self._all().values()
            if user in (None, workflow.user)
            and (state is None or workflow.is_in(state))
            and workflow.at >= since
            and not (roots and workflow.parent)
        ][:limit]
        for i in range(0, len(known), _PAGE):
            yield [_checked(workflow.as_dict()) for workflow in known[i : i + _PAGE]]

    def workflow(self, key: str, history: int) -> dict[str, Any]:
        """``GET /v1/workflows/KEY``."""
        workflow = self._all()[key]
        return _checked(workflow.as_dict()) | {
            "source": workflow.source,
            "children": list(workflow.children),
            "history": self._known.changes(key, history),
        }

    def analysis(self, key: str, whole: bool) -> dict[str, Any]:
        """``GET /v1/workflows/KEY/analysis``."""
        known = self._all()
        ids = self._known.inside(key, known) if whole else [key]
        made = analyse(
            m
            for workflow in ids
            for metric in READ
            for m in self._archive.query(metric, workflow=workflow)
        )
        return {"workflow": key, "state": known[key].state, "workflows": ids} | asdict(made)

    def waiting(self, key: str) -> Rows:
        """Transfers of a workflow that wait for a path, each with ``job`` and ``reason``: only the
        broker knows."""
        return []

    def refresh(self, key: str) -> bool:
        """``POST /v1/workflows/KEY/refresh``; whether it was measured."""
        refresher = Refresher(self._archive, time.time)
        number = refresher.ask(key, self._known.facts(key))
        until = time.monotonic() + _REFRESH_S
        while not (answered := refresher.answered(number)) and time.monotonic() < until:
            time.sleep(LOOK_S / 2)
        return answered

    def measurements(self, metric: str, **criteria: Any) -> list[Measurement]:
        """All pages of ``GET /v1/measurements``."""
        return self._archive.query(metric, **criteria)

    def metrics(self) -> list[str]:
        """What there are measurements of."""
        return self._archive.metrics()

    def _all(self) -> dict[str, Overview]:
        return self._known.all(lambda _: True)


def _checked(row: dict[str, Any]) -> dict[str, Any]:
    """A workflow that is no longer followed does not run for ever: not where its directory, on
    this machine, is gone."""
    here = row["host"].split(".")[0] in ("", socket.gethostname().split(".")[0])
    if here and row["state"] in ("planned", "running") and row["submit_dir"]:
        try:
            os.stat(row["submit_dir"])  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return row | {"stuck": "its submit directory is gone"}
        except (OSError, ValueError):
            pass
    return row


class BrokerSource:
    """Asks a broker. Raises InputError for an invalid URL or token; every question raises
    BrokerError."""

    def __init__(self, url: str, token_file: Path | None = None) -> None:
        self._client = BrokerClient(url, _TIMEOUT_S, *credentials(token_file))

    def workflows(
        self,
        limit: int = MOST_LISTED,
        user: str | None = None,
        state: str | None = None,
        since: float = 0.0,
        roots: bool = False,
    ) -> Iterator[Rows]:
        """See :class:`ArchiveSource`."""
        given = {"user": user, "state": state, "since": since, "roots": roots}
        query: dict[str, Any] = {key: value for key, value in given.items() if value}
        while limit > 0:
            size = min(_PAGE, limit)
            rows = self._ask(list, "GET", "/v1/workflows", query | {"limit": size})
            yield rows
            if len(rows) < size:
                return
            limit -= size
            query["cursor"] = f"{rows[-1]['at']}:{rows[-1]['id']}"

    def workflow(self, key: str, history: int) -> dict[str, Any]:
        """See :class:`ArchiveSource`."""
        return self._ask(dict, "GET", _path(key), {"history": history})

    def analysis(self, key: str, whole: bool) -> dict[str, Any]:
        """See :class:`ArchiveSource`."""
        return self._ask(dict, "GET", f"{_path(key)}/analysis", {"whole": whole})

    def waiting(self, key: str) -> Rows:
        """See :class:`ArchiveSource`; none where the caller may not see them."""
        with suppress(BrokerError):
            queued = self._client.list("queued", key)
            return [{"job": t.request.job, "reason": t.reason} for t in queued]
        return []

    def refresh(self, key: str) -> bool:
        """See :class:`ArchiveSource`."""
        return bool(self._ask(dict, "POST", f"{_path(key)}/refresh")["refreshed"])

    def measurements(self, metric: str, **criteria: Any) -> list[Measurement]:
        """See :class:`ArchiveSource`."""
        query = {"metric": metric} | {k: v for k, v in criteria.items() if v is not None}
        measurements: list[Measurement] = []
        while query.get("cursor", "first"):
            page, query["cursor"] = self._ask(_page, "GET", "/v1/measurements", query)
            measurements += page
        return measurements

    def metrics(self) -> list[str]:
        """See :class:`ArchiveSource`."""
        return self._ask(_metrics, "GET", "/v1/measurements/series")

    def _ask(
        self, read: Callable[[Any], T], verb: str, path: str, query: Mapping[str, Any] | None = None
    ) -> T:
        return self._client.read(read, verb, path + (f"?{urlencode(query)}" if query else ""))


def _path(workflow: str) -> str:
    return f"/v1/workflows/{quote(workflow)}"


def _page(answer: Any) -> tuple[list[Measurement], str | None]:
    """Measurements, and the cursor of the next page; None for no more."""
    return [Measurement(**row) for row in answer["measurements"]], answer["next"]


def _metrics(answer: Any) -> list[str]:
    return sorted({series["metric"] for series in answer["series"]})


WorkflowSource = ArchiveSource | BrokerSource


@contextmanager
def source_of(args: argparse.Namespace, *, writes: bool = False) -> Iterator[WorkflowSource]:
    """What the options name. Raises AdonError."""
    if args.broker is not None:
        yield BrokerSource(args.broker, args.token_file)
        return
    with open_archive(args.archive, writes=writes) as archive:
        yield ArchiveSource(archive)


def find(source: WorkflowSource, wanted: str) -> str:
    """The id of the workflow that a user means: by its id, the beginning of it, its submit
    directory, or its name where that is of one alone. Raises InputError."""
    known = [row for page in source.workflows() for row in page]
    ids = [row["id"] for row in known]
    if wanted in ids:
        return wanted
    if (workflow := _workflow_in(wanted)) in ids:
        return workflow
    path = os.path.realpath(wanted)
    by = [
        # Plain sub-DAGs lie in the directory of the workflow that they are a part of.
        [
            row
            for row in known
            if row["submit_dir"] and os.path.realpath(row["submit_dir"]) == path
            if not row["parent"]
        ],
        [row for row in known if len(wanted) >= _SHORTEST and row["id"].startswith(wanted)],
        [row for row in known if row["name"] == wanted],
    ]
    for rows in by:
        if len(rows) == 1:
            return str(rows[0]["id"])
        if rows:
            some = ", ".join(row["id"] for row in rows[:_SHOWN])
            more = ", …" if len(rows) > _SHOWN else ""
            raise InputError(
                f"workflow {wanted!r}: found {len(rows)}, expected one of {some}{more}"
            )
    raise InputError(f"workflow {wanted!r}: found none, {_instead(wanted, known)}")


def _workflow_in(path: str) -> str:
    """The id of the workflow in a directory, or of a DAG, wherever that was followed; "" if
    there is none."""
    try:
        return submit_dir_of(path).workflow
    except (AdonError, OSError, ValueError, RuntimeError):
        return ""


def _instead(wanted: str, known: Rows) -> str:
    """What might be meant."""
    if not known:
        return "nor any other; 'adon monitor run' follows workflows"
    anything = "expected an id, a name or a submit directory ('adon monitor list' has them)"
    by_id = meant(wanted, [row["id"] for row in known], anything)
    return meant(wanted, dict.fromkeys(row["name"] for row in known), by_id)
