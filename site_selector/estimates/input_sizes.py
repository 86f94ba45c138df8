"""Sizes of inputs that are unknown, by what earlier runs of their jobs read.

A run leaves how many bytes it computed in a second and how long it took: together, what it read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from statistics import median

from site_selector.estimates.world import MeasurementSource
from site_selector.inputs import FROM_RUNS, Inputs


def with_history(inputs: Inputs, measured: MeasurementSource, now: float) -> Inputs:
    """``inputs`` with the sizes that were estimated estimated anew, where the archive has runs of
    the transformations that read them: a job's inputs of unknown size share what is left of what
    its like read, and of several readers the median counts."""
    if not inputs.estimated:
        return inputs
    bytes_read = cache(partial(_bytes_read, inputs.sites, measured, now))
    shares: dict[str, list[float]] = {}
    for job in inputs.workflow.jobs.values():
        unknown = [lfn for lfn in job.inputs if lfn in inputs.estimated]
        if unknown:
            total = bytes_read(job.transformation)
            rest = (total or 0.0) - sum(_known_bytes(inputs, lfn) for lfn in job.inputs)
            if rest > 0:
                for lfn in unknown:
                    shares.setdefault(lfn, []).append(rest / len(unknown))
    sizes = {lfn: max(1, int(median(measured_bytes))) for lfn, measured_bytes in shares.items()}
    return replace(
        inputs,
        raw_bytes={**inputs.raw_bytes, **sizes},
        estimated={**inputs.estimated, **dict.fromkeys(sizes, FROM_RUNS)},
    )


def _known_bytes(inputs: Inputs, lfn: str) -> float:
    if lfn in inputs.estimated:
        return 0.0
    return float(inputs.raw_bytes.get(lfn, inputs.workflow.files[lfn].size_bytes or 0))


def _bytes_read(
    sites: Mapping[str, object], measured: MeasurementSource, now: float, transformation: str
) -> float | None:
    """Of one job, the median over the sites where it ran."""
    estimates = []
    for site in sites:
        there = f"{transformation}@{site}"
        rate = measured.estimate("compute_rate", there, now)
        runtime = measured.estimate("runtime", there, now)
        if rate is not None and runtime is not None:
            estimates.append(rate.value * runtime.value)
    return median(estimates) if estimates else None
