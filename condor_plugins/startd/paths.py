"""Bandwidth that may still be reserved to and from a slot's site, and how long a job's data would
take to arrive there, as ClassAd attributes: a program for HTCondor's STARTD_CRON.

    python -m condor_plugins.startd.paths --config FILE [--spread SECONDS]

asks the broker that FILE names (the hooks' configuration, ``site`` included) for its network, and
prints for every other site, and for layer 2 and layer 3,

    AdonAvailL2From_<site>_Bps, AdonAvailL2To_<site>_Bps    AdonAvailL3From_..., AdonAvailL3To_...

in bits per second: what the best of the candidate paths of that layer has left, 0 if all of it
is reserved or its links have failed. The other end is the slot's own site, so that one Rank orders
slots of all sites. Where there is no path of a layer, or no broker answers, nothing is printed, and
the startd drops what it was told before. ``AdonDataSeconds`` is an expression: matched with a job
that says in ``AdonBytesAt_<site>`` how many bytes it needs from where, it is the seconds until they
are here. ``AdonPathsAt`` is when the broker was asked, in Unix seconds.

A ClassAd name has letters, digits and _ alone and no case: any other character of a site's name
is written as _ (:func:`site_word`), and of sites that then have one name the least is told.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from condor_plugins.jobs.sites import site_word
from network_provisioner.base.errors import AdonError, BrokerError, InputError
from network_provisioner.client import hookconfig
from network_provisioner.client.hookclient import client_of
from network_provisioner.topology.paths import PathFinder

Hop = tuple[str, str]
Known = Mapping[tuple[str, str], float]
_CANDIDATES = 8  # paths between two sites, as the broker looks at them


def available(network: Mapping[str, Any], site: str) -> dict[str, float]:
    """Attributes of a slot at ``site``, b/s, from what ``GET /v1/topology`` answers.

    Raises KeyError, TypeError or ValueError if that is something else, InputError if the
    network does not have the site.
    """
    sites = [str(node["name"]) for node in network["nodes"] if node["kind"] == "site"]
    if site not in sites:
        raise InputError(f"site {site}: not in the broker's network, expected one of {sites}")
    links = network["links"]
    routed, free = dict[Hop, bool](), dict[Hop, float]()
    for link in links:
        for load in link["load"]:
            hop = (str(load["from"]), str(load["to"]))
            left = max(0.0, float(load["reservable_bps"]) - float(load["reserved_bps"]))
            routed[hop], free[hop] = link["layer"] == "l3", 0.0 if link.get("failed") else left
    finder = PathFinder(
        (str(node["name"]) for node in network["nodes"]),
        ((str(link["a"]), str(link["b"]), float(link["delay_s"])) for link in links),
        sites,
    )
    rates: dict[str, float] = {}
    for other in sites:
        for way, src, dst in (("From", other, site), ("To", site, other)):
            for layer, left in _best(finder.k_shortest(src, dst, _CANDIDATES), routed, free):
                name = f"AdonAvail{layer}{way}_{site_word(other)}_Bps"
                known = next(
                    (candidate for candidate in rates if candidate.lower() == name.lower()), name
                )
                rates[known] = min(left, rates.get(known, left))
    return rates


def _best(
    paths: Iterable[Sequence[str]], routed: Mapping[Hop, bool], free: Mapping[Hop, float]
) -> Iterable[tuple[str, float]]:
    best: dict[str, float] = {}
    for path in paths:
        hops = list(pairwise(path))
        layer = "L3" if any(routed[hop] for hop in hops) else "L2"
        best[layer] = max(best.get(layer, 0.0), min(free[hop] for hop in hops))
    return best.items()


def data_seconds(sites: Iterable[str], site: str, rates: Mapping[str, float], known: Known) -> str:
    """``AdonDataSeconds`` of a slot at ``site``: the sum over the others of what transfers from
    there were measured to take (``known``: b/s and s by metric and path), else of what may be
    reserved (``rates``). Undefined for a job with data at a site of which neither is known."""
    free = {name.lower(): rate for name, rate in rates.items()}
    slowest: dict[str, tuple[float, float]] = {}
    for other in sites:
        word, path = site_word(other).lower(), f"{other}>{site}"
        left = (free.get(f"adonavail{layer}from_{word}_bps", 0.0) for layer in ("l2", "l3"))
        rate = known.get(("transfer_rate", path)) or known.get(("throughput", path)) or max(left)
        if other != site:
            start_s = known.get(("transfer_start", path), 0.0)
            slowest[word] = min((rate, -start_s), slowest.get(word, (rate, -start_s)))
    terms = []
    for word, (rate, start_s) in slowest.items():
        there = f"(TARGET.AdonBytesAt_{word} ?: 0)"
        takes = f"{there} * 8 / {rate:.0f}.0 + {-start_s:.1f}" if rate >= 1 else "undefined"
        terms.append(f"ifThenElse({there} > 0, {takes}, 0)")
    return " + ".join(terms) or "0"


def path_attributes(config: Path) -> dict[str, str]:
    """What the broker reports to a slot of the configuration's site. Raises AdonError."""
    settings = hookconfig.load(config)
    if not settings.site:
        raise InputError(f"{config}: found no key 'site', expected the site of this machine")
    client = client_of(settings, os.environ)
    try:
        network = client.topology()
        rates = available(network, settings.site)
    except (KeyError, TypeError, ValueError) as error:
        raise BrokerError(f"{settings.broker}: no network: {error!r}", "bad_answer") from None
    sites = [str(node["name"]) for node in network["nodes"] if node["kind"] == "site"]
    known: Known = {}
    with suppress(AdonError):  # a token that may not see them, or a broker that keeps none
        known = client.read(_measured, "POST", "/v1/estimates", {"sites": sites})
    return {
        **{name: f"{rate:.0f}" for name, rate in rates.items()},
        "AdonDataSeconds": data_seconds(sites, settings.site, rates, known),
        "AdonPathsAt": f"{time.time():.0f}",
    }


def _measured(answer: Any) -> Known:
    return {(row["metric"], row["subject"]): float(row["value"]) for row in answer["estimates"]}


def main(argv: Sequence[str] | None = None) -> int:
    """Ask and print; if unknown, one line on standard error and an empty ad."""
    parser = argparse.ArgumentParser(prog="python -m condor_plugins.startd.paths")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument(
        "--spread", type=float, default=0.0, metavar="SECONDS",
        help="wait for so long at most, by chance, so that not all machines ask at once",
    )  # fmt: skip
    options = parser.parse_args(argv)
    time.sleep(random.uniform(0, options.spread))
    attributes: dict[str, str] = {}
    try:
        attributes = path_attributes(options.config)
    except AdonError as error:
        print(error, file=sys.stderr)
    print("\n".join([*(f"{name} = {value}" for name, value in sorted(attributes.items())), "-"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
