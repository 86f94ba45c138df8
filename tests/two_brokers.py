"""Two brokers that share a PostgreSQL, and an audit of what they write there.

A trigger keeps each version of each transit: every commit, not only what is left. The check knows
nothing of ledgers: it adds up what the rows say, for every link direction and every instant.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import psycopg
import yaml

from examples.testbed.ports import free_ports
from network_provisioner.base.errors import BrokerError
from network_provisioner.client.broker import BrokerClient

_EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "adon.yml"
_READY_S = 300.0  # nothing here takes nearly as long


class TwoBrokers:
    """They have different ports and one database; each is named by its number, 0 or 1."""

    def __init__(self, folder: Path, url: str, templates: Mapping[str, Any] | None = None) -> None:
        """``templates`` are more than those of ``examples/adon.yml``."""
        self.folder, self.url = folder, url
        self.ports = free_ports(2)
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.config = yaml.safe_load(_EXAMPLE.read_text())
        self.config["templates"] |= templates or {}
        for number, port in enumerate(self.ports):
            broker = {
                "listen": f"127.0.0.1:{port}",
                "state": url,
                "archive": str(folder / f"archive{number}.sqlite"),
            }
            text = yaml.safe_dump(self.config | {"broker": broker})
            (folder / f"{number}.yml").write_text(text)

    def client(self, number: int, timeout_s: float = 60.0) -> BrokerClient:
        return BrokerClient(f"http://127.0.0.1:{self.ports[number]}", timeout_s)

    def start(self, *numbers: int) -> None:
        """These, at the same time; returns when each is ready."""
        for number in numbers:
            self._start(number)
        deadline = time.monotonic() + _READY_S
        for number in numbers:
            while not self._is_ready(number):
                log = (self.folder / f"{number}.log").read_text()
                if time.monotonic() > deadline:
                    raise RuntimeError(f"broker {number} does not start: {log}")
                if self.running[number].poll() is not None:
                    # It waits seconds for a database; a service manager starts it again then.
                    last = log.rstrip().rpartition("\n")[2]
                    assert last.startswith("adon broker: database "), log
                    self._start(number)
                time.sleep(0.05)

    def _start(self, number: int) -> None:
        with (self.folder / f"{number}.log").open("ab") as log:
            self.running[number] = subprocess.Popen(
                [sys.executable, "-m", "adon.service.serve", "--config", f"{number}.yml",
                 "--tied-to", str(os.getpid())],
                cwd=self.folder, stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip

    def _is_ready(self, number: int) -> bool:
        try:
            health = self.client(number).health()
        except BrokerError:
            return False
        return bool(health["leader"]) and health["status"] == "ok"

    def leader(self) -> int:
        """The number of the one that leads, once both know it."""
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            try:
                healths = [self.client(number).health() for number in (0, 1)]
            except BrokerError:
                healths = []
            leads = [number for number, health in enumerate(healths) if health["leads"]]
            if len(leads) == len({health["leader"] for health in healths}) == 1:
                return leads[0]
            time.sleep(0.1)
        raise RuntimeError("the brokers do not agree on a leader")

    def kill(self, number: int) -> None:
        """-9."""
        self.running[number].kill()
        self.running.pop(number).wait()

    def freeze(self, number: int) -> None:
        """Have it stand still, wherever it is."""
        self.running[number].send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        self.running[number].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(_READY_S)


Hop = tuple[str, str]
_LIVE = ("held", "installed", "active")
_WATCH = """
CREATE TABLE audit (seq BIGINT GENERATED ALWAYS AS IDENTITY, change BIGINT, term BIGINT, body TEXT,
at DOUBLE PRECISION DEFAULT extract(epoch FROM clock_timestamp()));
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO audit (change, term, body) SELECT change, term, NEW.body FROM adon_meta;
RETURN NULL; END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE ON adon_transits
FOR EACH ROW EXECUTE FUNCTION audit();
"""
_ROUNDING_BPS = 1.0  # for each transit: rates are whole bits per second on the way


def watch(url: str) -> None:
    """Keep every version from now on; the tables have to be there."""
    with psycopg.connect(url) as db:
        db.execute(_WATCH)


@dataclass(frozen=True)
class Commit:
    """Who wrote which transits, in its term, when (Unix seconds)."""

    term: int
    at: float
    transits: list[dict[str, Any]]


def commits(url: str) -> Iterator[Commit]:
    """Every commit, in order."""
    columns = "change, term, at, body"
    with psycopg.connect(url) as db:
        rows = db.execute(f"SELECT {columns} FROM audit ORDER BY change, seq").fetchall()
    for _, group in groupby(rows, key=lambda row: row[0]):
        versions = list(group)
        bodies = [json.loads(body) for *_, body in versions]
        yield Commit(versions[0][1], versions[0][2], bodies)


def oversubscribed(url: str, capacities: Mapping[Hop, float]) -> list[str]:
    """Each link direction that at some commit had promised more than it has, at any instant."""
    live: dict[str, dict[str, Any]] = {}
    violations = []
    for number, commit in enumerate(commits(url)):
        touched: set[Hop] = set()
        for transit in commit.transits:
            live.pop(transit["id"], None)
            if transit["state"] in _LIVE:
                live[transit["id"]] = transit
                touched |= {hop for hop, _ in _minima(transit)}
        for hop in touched:
            most = _most(hop, live, commit.at)
            if most > capacities[hop]:
                ids = [t["id"] for t in live.values() if hop in dict(_minima(t))]
                violations.append(
                    f"commit {number} in term {commit.term} at {commit.at}: {most:g} of "
                    f"{capacities[hop]:g} b/s on {hop} for {ids}"
                )
    return violations


def _most(hop: Hop, live: Mapping[str, dict[str, Any]], now: float) -> float:
    """The most that is promised on a hop at any instant from now on. A lease that is over promises
    nothing, also where nobody has noted yet that it is."""
    changes = []
    for transit in live.values():
        for at, bps in _minima(transit):
            if at == hop and transit["lease_until"] > now:
                changes.append((max(now, transit["start"]), bps - _ROUNDING_BPS))
                changes.append((transit["lease_until"], _ROUNDING_BPS - bps))
    total = most = 0.0
    for _, bps in sorted(changes):
        total += bps
        most = max(most, total)
    return most


def _minima(transit: Mapping[str, Any]) -> list[tuple[Hop, float]]:
    parts = transit["parts"] or [{"path": transit["path"], "min_bps": transit["requested_bps"]}]
    return [(hop, part["min_bps"]) for part in parts for hop in pairwise(part["path"])]
