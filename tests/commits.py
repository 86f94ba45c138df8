"""An audit of what brokers write into one PostgreSQL: every commit, not only what is left.

A trigger keeps each version of each transit. The check knows nothing of ledgers: it adds up what
the rows themselves say, for every link direction and every instant.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import psycopg

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
