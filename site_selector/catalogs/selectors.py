"""Which programs and replicas Pegasus takes of several, as its properties say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from network_provisioner.base.errors import InputError
from site_selector.catalogs.entries import SUBMIT_SITE, Executable, Replica, Transformation
from site_selector.catalogs.javapattern import compiled

_MAPPER = "pegasus.catalog.transformation.mapper"
_PROGRAM_SELECTOR = "pegasus.selector.transformation"
_REPLICA_SELECTOR = "pegasus.selector.replica"
_RANK = f"{_REPLICA_SELECTOR}.regex.rank."


def taken_programs(
    programs: Mapping[str, Transformation], properties: Mapping[str, str]
) -> dict[str, Transformation]:
    """The programs with the places that Pegasus's mapper and selector take: those installed, those
    it stages, or those it stages from the submit host."""
    mapper = properties.get(_MAPPER, "")
    kinds = {mapper, properties.get(_PROGRAM_SELECTOR, "")}

    def taken(place: Executable) -> bool:
        if place.stageable:
            here = place.site.lower() == SUBMIT_SITE
            return "Installed" not in kinds and (here or "Submit" not in kinds)
        return kinds.isdisjoint(("Staged", "Submit"))

    def there(place: Executable) -> Executable:
        return replace(place, container=False) if mapper == "Installed" else place

    if kinds.isdisjoint(("Installed", "Staged", "Submit")):
        return dict(programs)
    return {
        name: replace(t, executables=tuple([there(e) for e in t.executables if taken(e)]))
        for name, t in programs.items()
    }


def taken_replicas(
    replicas: Mapping[str, Replica], properties: Mapping[str, str]
) -> dict[str, Replica]:
    """The replicas with the places of the first rank that Pegasus's selector ``Regex`` gives any of
    them. Raises InputError for a rank or an expression that is none."""
    if properties.get(_REPLICA_SELECTOR) != "Regex":
        return dict(replicas)
    ranks: dict[int, re.Pattern[str]] = {}
    for key, value in properties.items():
        if key.startswith(_RANK):
            try:
                ranks[int(key.removeprefix(_RANK))] = compiled(value)
            except (ValueError, re.error) as error:
                raise InputError(
                    f"{key}: found {value!r}, expected a number and a regular expression: {error}"
                ) from None
    patterns = [ranks[rank] for rank in sorted(ranks)]

    def of_first_rank(replica: Replica) -> Replica:
        for pattern in patterns:
            places = tuple([place for place in replica.places if pattern.fullmatch(place[1])])
            if places:
                return replace(replica, places=places)
        return replica

    return {lfn: of_first_rank(replica) for lfn, replica in replicas.items()}
