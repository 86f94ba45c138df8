"""The few lines that the demo ends with."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from adon.demo.facts import RunFacts
from network_provisioner.units import format_rate, format_size


def summary_text(facts: RunFacts, reports: tuple[Path, Path]) -> str:
    """Did it work, where, how fast, what is left, what was learnt."""
    sites = Counter(p["site"] for p in facts.mapping["placements"])
    where = ", ".join(f"{count} at {site}" for site, count in sorted(sites.items()))
    lines = [
        "",
        f"workflow   {facts.state}: {facts.jobs} jobs in {facts.makespan_s:.1f} s ({where})",
        _planner(facts),
        *_network(facts),
        *_science(facts),
        f"left over  {facts.open_reservations} reservations, {facts.flows_left} flows on switches",
        f"learnt     {facts.status_records} status records, goodput and run times in the archive",
        *_changes(facts),
        *(f"warning    {words}" for words in facts.warnings),
        f"report     {reports[0]}",
        f"           {reports[1]}",
    ]
    return "\n".join(lines)


def _planner(facts: RunFacts) -> str:
    if facts.planner == "embedded":
        return "planner    embedded, for machines without Pegasus (pegasus-plan is not on PATH)"
    return f"planner    {facts.planner}"


def _network(facts: RunFacts) -> list[str]:
    given = [t for t in facts.transits if t.path]
    lines = [
        f"network    {facts.network}: {len(given)} of {len(facts.transits)} transfers between "
        "sites got a path of their own"
    ]
    if facts.network_note:
        lines.append(f"           {facts.network_note}")
    for transit in sorted(given, key=lambda t: -t.bytes)[:4]:
        lines.append(
            f"           {transit.src} → {transit.dst} by {' '.join(transit.path[1:-1])}: "
            f"{format_size(transit.bytes)} at {format_rate(transit.goodput_bps)}, "
            f"{format_rate(transit.granted_bps)} granted"
        )
    return lines


def _science(facts: RunFacts) -> list[str]:
    if not facts.science:
        return []
    return [
        f"science    {facts.science['planted_snps']:.0f} SNPs planted, "
        f"recall {facts.science['recall']:.4f}, precision {facts.science['precision']:.4f}"
    ]


def _changes(facts: RunFacts) -> list[str]:
    if not facts.earlier_measurements:
        return [
            "next time  sites were chosen from the catalogs alone; "
            "run it again to see what these measurements change"
        ]
    if facts.learnt_text:
        first, *rest = facts.learnt_text.splitlines()
        return [f"changed    {first}", *(f"           {line.strip()}" for line in rest)]
    return []
