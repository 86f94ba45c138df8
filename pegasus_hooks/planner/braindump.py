"""The small files around a plan, with the keys Pegasus writes: braindump, properties, metadata."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path

from monitors.workflows.planned.transferlist import Transfer
from pegasus_hooks.planner.model import PlannedJob, Sources
from pegasus_hooks.planner.submitfile import RunFacts
from site_selector.catalogs.workflow import Workflow

PLANNER_VERSION = "ADON embedded planner (no Pegasus on this machine)"
PROPERTIES = "pegasus.properties"


def braindump_text(facts: RunFacts, workflow: Workflow, sources: Sources, output_site: str) -> str:
    """``braindump.yml``: what Pegasus's own tools and the hooks need to know of a run."""
    base = facts.submit_dir.parents[3]
    values = {
        "user": facts.options.user,
        "grid_dn": None,
        "submit_hostname": socket.gethostname(),
        "root_wf_uuid": facts.wf_uuid,
        "wf_uuid": facts.wf_uuid,
        "dax": str(sources.workflow.absolute()),
        "dax_label": facts.label,
        "dax_index": "0",
        "dax_version": str(workflow.document.root.get("pegasus", "")),
        "pegasus_wf_name": facts.name,
        "timestamp": facts.timestamp,
        "basedir": str(base),
        "submit_dir": str(facts.submit_dir),
        "planner": "adon",
        "planner_version": PLANNER_VERSION,
        "pegasus_build": f"pegasus-wms.worker {facts.version}",
        "planner_arguments": f"--output-sites {output_site} --dir {base}",
        "jsd": "jobstate.log",
        "rundir": str(facts.submit_dir.relative_to(base)),
        "bindir": str(Path(facts.options.python).parent),
        "vogroup": "pegasus",
        "uses_pmc": "false",
        "properties": PROPERTIES,
        "app": "none",
        "condor_log": f"{facts.name}.log",
        "dag": f"{facts.name}.dag",
        "type": "dag",
        "notify": f"{facts.name}.notify",
    }
    return "".join(
        f"{key}: {'null' if value is None else json.dumps(value)}\n"
        for key, value in values.items()
    )


def properties_text(facts: RunFacts) -> str:
    """The properties that this plan amounts to."""
    catalogs = facts.submit_dir / "catalogs"
    lines = ["# What a real pegasus-plan would be told for the same plan"]
    for kind in ("site", "replica", "transformation"):
        lines += [
            f"pegasus.catalog.{kind}=YAML",
            f"pegasus.catalog.{kind}.file={catalogs / f'{kind}s.yml'}",
        ]
    lines += ["pegasus.data.configuration=sharedfs", "pegasus.transfer.links=true"]
    lines.append(f"pegasus.transfer.threads={facts.options.transfer_threads}")
    return "\n".join(lines) + "\n"


def metadata_text(facts: RunFacts, jobs: Mapping[str, PlannedJob]) -> str:
    """``<wf>.metadata``: the sizes declared in each job's list."""
    sizes = {
        name: {
            f"{entry.lfn}.size": str(entry.size_bytes)
            for entry in job.entries
            if isinstance(entry, Transfer) and entry.size_bytes is not None
        }
        for name, job in jobs.items()
    }
    data = {
        "root_workflow_uuid": facts.wf_uuid,
        "workflow_uuid": facts.wf_uuid,
        "wf_metadata": {},
        "graph": {"jobs": sizes},
    }
    return json.dumps(data, indent=2) + "\n"
