"""A decision of edge optimisation as text, as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from network_provisioner.base.units import format_rate
from site_selector.edge import Decision, Edge, Offer, Shortage
from site_selector.explain.tables import table
from site_selector.mapping.placement import finite
from site_selector.mapping.reasons import seconds


def decision_dict(decision: Decision, edge: Edge, place: int | None) -> dict[str, Any]:
    """JSON-ready; ``place`` is that in the queue, None if the application has its resources."""
    return {
        "application": decision.needs.application,
        "priority": decision.needs.priority,
        "taken": None if decision.taken is None else _offer(decision.taken),
        "queue_place": place,
        "offers": [_offer(item) for item in decision.offers],
        "cannot": edge.cannot,
        "left": {name: finite(value) for name, value in decision.left.items()},
        "give_way": [
            {"application": h.application, "priority": h.priority} for h in decision.give_way
        ],
        "lowest_priority_in_l2": decision.lowest_priority,
        "reason": reason(decision, edge),
    }


def _offer(item: Offer) -> dict[str, Any]:
    return {
        "site": item.way.site,
        "local": item.way.local,
        "layer": item.way.layer,
        "fits": item.fits,
        "workers": item.workers,
        "t_q_s": finite(item.way.t_q_s),
        "t_c_s": finite(item.t_c_s),
        "t_n_s": finite(item.t_n_s),
        "t_t_s": finite(item.t_t_s),
        "takes": dict(item.amounts),
        "lacks": [
            {k: finite(v) if isinstance(v, float) else v for k, v in asdict(lack).items()}
            for lack in item.lacks
        ],
    }


def decision_text(decision: Decision, edge: Edge, place: int | None) -> str:
    """Every way with its terms or what it lacks, and the decision with its reason."""
    needs = decision.needs
    workers = f"{needs.least_workers} to {needs.most_workers}"
    if needs.least_workers == needs.most_workers:
        workers = str(needs.most_workers)
    lines = [
        f"{needs.application}, priority {needs.priority}: needs {workers} workers, and "
        f"{_between(needs.least_bps, needs.most_bps)} on its paths",
        "",
    ]
    head = ("  way", "T_q", "S_c/(N·Γ_c)", "S_t/min(Γ_t,Γ_a)", "T_t", "takes")
    rows: list[Sequence[str]] = []
    for item in decision.offers:
        if item.fits:
            mark = "* " if item is decision.taken else "  "
            terms = (item.way.t_q_s, item.t_c_s, item.t_n_s, item.t_t_s)
            takes = "; ".join(_amount(name, value) for name, value in item.amounts.items())
            rows.append((mark + item.way.name, *(seconds(t) for t in terms), takes))
    lines += [table(head, rows)] if rows else []
    lines += [f"  {o.way.name} lacks {_lacks(o)}" for o in decision.offers if not o.fits]
    lines += [*(f"  {why}" for why in edge.cannot.values()), ""]
    if decision.taken is not None:
        lines.append(f"{decision.taken.way.name}: {reason(decision, edge)}")
        left = [
            f"{_amount(name, decision.left[name])} of {_bare(name, edge.total[name])}"
            for name in decision.taken.amounts
        ]
        lines.append(f"left: {'; '.join(left)}")
    else:
        lines.append(f"waits in the scheduler's queue (place {place}): {_who_could(decision)}")
    return "\n".join(lines)


def reason(decision: Decision, edge: Edge) -> str:
    """One sentence: why this way, or which resource lacks, who holds it and who could give way."""
    if decision.taken is not None:
        return _why(decision.taken, [o for o in decision.offers if o is not decision.taken])
    if not decision.offers:
        return "; ".join(edge.cannot.values()) or "no site was given"
    lacking = "; ".join(f"{o.way.name} lacks {_lacks(o)}" for o in decision.offers)
    return f"{lacking}; {_who_could(decision)}"


def _who_could(decision: Decision) -> str:
    if not decision.offers:
        return "no site can run the whole workflow"
    if not decision.give_way:
        return "no application of lower priority in layer 2 could make room"
    named = " and ".join(f"{h.application} (priority {h.priority})" for h in decision.give_way)
    return f"it would fit without {named} in layer 2"


def _why(taken: Offer, others: Sequence[Offer]) -> str:
    mine = f"T_t {seconds(taken.t_t_s)}"
    other = next((o for o in others if o.fits), None)
    if other is not None:
        return f"{mine} against {seconds(other.t_t_s)} {other.way.name}"
    return f"{mine}, and no other way is open" if others else f"{mine}, the only way there is"


def _lacks(item: Offer) -> str:
    return ", ".join(_lack(lack) for lack in item.lacks)


def _lack(lack: Shortage) -> str:
    text = (
        f"{lack.resource}: {_bare(lack.resource, lack.needed)} needed, "
        f"{_bare(lack.resource, lack.free)}"
    )
    if lack.holders or lack.free != lack.total:
        text += f" of {_bare(lack.resource, lack.total)}"
    text += " free" if not lack.resource.startswith("throughput") else " reached"
    return text + (f", held by {', '.join(lack.holders)}" if lack.holders else "")


def _amount(resource: str, value: float) -> str:
    """``bandwidth mu>tacc 50 Mb/s``, ``workers at mu 4``."""
    return f"{resource} {_bare(resource, value)}"


def _bare(resource: str, value: float) -> str:
    return f"{value:g}" if resource.startswith("workers") else format_rate(value)


def _between(least_bps: float, most_bps: float) -> str:
    if math.isinf(most_bps):
        return f"at least {format_rate(least_bps)}"
    return f"{format_rate(least_bps)} to {format_rate(most_bps)}"
