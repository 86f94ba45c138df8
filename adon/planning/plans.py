"""Plans of workflows, read and left where all who plan find them: with the broker or, where none
answers, in the archive, if this user may write it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from adon.config.adon_yml import broker_of, load_config
from adon.planning.holdings import BROKER_TIMEOUT_S
from network_provisioner.base.database_url import place as at
from network_provisioner.base.errors import AdonError
from network_provisioner.client.broker import BrokerClient
from site_selector.estimates.plans import Plan, plan_from

_UNUSABLE = (ValueError, TypeError, KeyError, AttributeError)


class Plans:
    """Of one planner, which left its own as ``name``. Neither reading nor leaving ever raises: who
    cannot be asked knows of no plan."""

    TRIALS = 3  # to leave one while others do

    def __init__(self, broker: BrokerClient | None, archive: str | Path | None, name: str) -> None:
        self._broker, self._archive, self._name = broker, archive, name
        self._number: int | None = None

    def read(self) -> tuple[Plan, ...]:
        """Those of other workflows that have not ended, corrected by their jobs."""
        self._number = None
        try:
            number, rows = self._of_broker() if self._broker is not None else self._of_archive()
        except AdonError:
            self._broker = None
            try:
                number, rows = self._of_archive()
            except AdonError:
                return ()
        self._number = number
        now, plans = time.time(), list[Plan]()
        for row in rows:
            try:
                plan = plan_from("", now - row["age_s"], row)
                done = row["done"]
                if not row["mine"]:
                    plans.append(plan if done is None else plan.corrected(done, now))
            except _UNUSABLE:
                continue
        return tuple(plans)

    def leave(self, plan: Plan) -> bool:
        """Leave a plan that was made beside all that were read last; False if another one came
        first. Nothing where plans could not be read."""
        if self._number is None:
            return True
        try:
            if self._broker is not None:
                body = {"name": self._name, "after": self._number, **plan.as_details()}
                return self._broker.read(_recorded, "POST", "/v1/plans", body)
            return self._into_archive(plan, self._number)
        except AdonError:
            return True

    def _of_broker(self) -> tuple[int, list[Mapping[str, Any]]]:
        assert self._broker is not None
        return self._broker.read(_plans, "GET", f"/v1/plans?name={quote(self._name, safe='')}")

    def _of_archive(self) -> tuple[int, list[Mapping[str, Any]]]:
        from monitors.archive.archive import Archive  # noqa: PLC0415  # only where no broker answers
        from monitors.archive.plans import known_plans  # noqa: PLC0415

        if self._archive is None:
            raise AdonError("found neither a broker nor an archive, expected one of them")
        with Archive(self._archive, read_only=True) as opened:
            number, plans = known_plans(opened, time.time())
        return number, [plan.shown(self._name) for plan in plans]

    def _into_archive(self, plan: Plan, after: int) -> bool:
        from monitors.archive.archive import Archive  # noqa: PLC0415
        from monitors.archive.plans import add_plan  # noqa: PLC0415

        archive = self._archive
        if archive is None or (isinstance(archive, Path) and not os.access(archive, os.W_OK)):
            return True
        with Archive(archive) as opened:
            return add_plan(opened, self._name, plan.at, plan.as_details(), after)


def plans_of(config: Path | None, name: str = "") -> Plans:
    """Where the plans of a campus are. Raises InputError for an invalid configuration."""
    if config is None:
        return Plans(None, None, name)
    loaded = load_config(config)
    return Plans(broker_of(loaded, BROKER_TIMEOUT_S), at(loaded.broker.archive), name)


def _plans(answer: Any) -> tuple[int, list[Mapping[str, Any]]]:
    return int(answer["number"]), [dict(row) for row in answer["plans"]]


def _recorded(answer: Any) -> bool:
    return bool(answer["recorded"])
