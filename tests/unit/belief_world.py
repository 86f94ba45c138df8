"""One small workflow and the sites that the tests of beliefs speak of."""

from __future__ import annotations

from site_world import (
    inputs_from,
    job,
    replicas_text,
    sites_text,
    transformations_text,
    workflow_text,
)

from site_selector.inputs import Inputs

NOW = 1000.0
HINTS: dict[str, dict[str, object]] = {
    "mu": {"adon.workers": 8, "adon.queue_wait": "30 s", "adon.bandwidth.tacc": "200 Mb/s"},
    "tacc": {"adon.rate": "40 MB/s"},
    "local": {"adon.workers": 0},
}


def world_inputs(
    hints: dict[str, dict[str, object]] | None = None, runtimes: dict[str, float] | None = None
) -> Inputs:
    sites = HINTS if hints is None else hints
    return inputs_from(
        workflow_text([job("x", "a", ["f"], ["g"]), job("y", "a", ["g"], ["h"])]),
        sites_text(sites),
        replicas_text({"f": ("mu", 100_000_000)}),
        transformations_text({"a": list(sites)}, runtimes),
    )
