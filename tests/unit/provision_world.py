"""Abstract workflows of any shape as text, for provisioning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from hypothesis import strategies as st

from site_selector.catalogs.workflow import Workflow, parse_workflow


def text(
    parents: Mapping[str, Sequence[str]],
    sizes: Mapping[str, int] | None = None,
    more: Mapping[str, Mapping[str, Any]] | None = None,
    edges: bool = True,
) -> str:
    """A workflow whose jobs each write ``<job>.out``, which their children read, in the form that
    Pegasus writes. ``sizes`` are of those files; ``more`` are further keys of a job."""
    jobs = []
    for job, above in parents.items():
        files = [*(f"{parent}.out" for parent in above), *([] if above else [f"{job}.in"])]
        uses: list[dict[str, Any]] = [{"lfn": lfn, "type": "input"} for lfn in files]
        uses.append({"lfn": f"{job}.out", "type": "output", "stageOut": False})
        for use in uses:
            if use["lfn"] in (sizes or {}):
                use["size"] = (sizes or {})[use["lfn"]]
        head = {"type": "job", "namespace": "t", "version": "1.0", "name": "run", "id": job}
        jobs.append({**head, "arguments": [], "uses": uses, **(more or {}).get(job, {})})
    document: dict[str, Any] = {"pegasus": "5.0.4", "name": "w", "jobs": jobs}
    if edges:
        document["jobDependencies"] = [
            {"id": parent, "children": [job]} for job, above in parents.items() for parent in above
        ]
    return yaml.safe_dump(document, sort_keys=False)


def workflow(parents: Mapping[str, Sequence[str]], **more: Any) -> Workflow:
    """The same, parsed."""
    return parse_workflow(text(parents, **more))


@st.composite
def graphs(draw: st.DrawFn, most: int = 14) -> dict[str, list[str]]:
    """Jobs and their parents, without cycles."""
    count = draw(st.integers(1, most))
    names = [f"j{n}" for n in range(count)]
    return {
        name: draw(st.lists(st.sampled_from(names[:n]), unique=True, max_size=3)) if n else []
        for n, name in enumerate(names)
    }


def ancestors(parents: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """All jobs that a job waits for."""
    by_job: dict[str, set[str]] = {}

    def of(job: str) -> set[str]:
        if job not in by_job:
            by_job[job] = set(parents[job]).union(*(of(p) for p in parents[job]))
        return by_job[job]

    for job in parents:
        of(job)
    return by_job
