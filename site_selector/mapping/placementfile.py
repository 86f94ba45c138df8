"""Leaves in a submit directory why its jobs were put where they are, for whoever follows the
workflow (:mod:`monitors.jobs.placements`, which describes the file)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from monitors.jobs.placements import FILE
from site_selector.mapping.placement import Alternative, Mapping, Placement, finite
from site_selector.wholefile import write_whole


def write_placements(submit_dir: Path, mapping: Mapping, at: float) -> None:
    """Write the file; ``at`` is when the workflow was mapped (Unix seconds). Raises InputError
    where it cannot be written."""
    document = {
        "at": at,
        "policy": mapping.policy,
        "makespan_s": finite(mapping.makespan_s),
        "placements": [_placement(one) for one in mapping.placements],
    }
    write_whole(submit_dir / FILE, lambda out: json.dump(document, out), "placements")


def _placement(placed: Placement) -> dict[str, Any]:
    chosen = next((a for a in placed.alternatives if a.site == placed.site), None)
    seconds = placed.end_s - placed.start_s if chosen is None else chosen.t_t_s
    return {
        "job": placed.job,
        "transformation": placed.transformation,
        "site": placed.site,
        "seconds": finite(seconds),
        "reason": placed.reason,
        "alternatives": [_alternative(one) for one in placed.alternatives],
    }


def _alternative(other: Alternative) -> dict[str, Any]:
    return {
        "site": other.site,
        "seconds": finite(other.t_t_s),
        "wait_s": finite(other.t_q_s),
        "compute_s": finite(other.t_c_s),
        "transfer_s": finite(other.t_n_s),
    }
