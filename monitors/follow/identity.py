"""Who a workflow is: the measurement ``workflow``, recorded once for each before anything else."""

from __future__ import annotations

import calendar
import os
import pwd
import time

from monitors.logs.submit_dir import SubmitDir
from monitors.measurement import Measurement


def workflow_facts(submit_dir: SubmitDir, root: str = "", parent: str = "") -> Measurement:
    """What the submit directory says of the workflow, which is a part of ``root`` and is run by a
    job of ``parent`` (UUIDs, "" where it is a part of none).

    ``planned_at`` and ``at`` are when it was planned, in Unix seconds.
    """
    dump, workflow = submit_dir.braindump, submit_dir.workflow
    # A part's DAG may lie elsewhere, and be called as another one in the directory.
    folder, dag = submit_dir.path, submit_dir.dag
    planned_at = _planned_at(dump.get("timestamp", "")) or _written_at(submit_dir)
    return Measurement(
        id=f"workflow:{workflow}",
        metric="workflow",
        subject=workflow,
        value=1.0,
        unit="1",
        at=planned_at,
        source="submit directory",
        workflow=workflow,
        details={
            "name": submit_dir.name,
            "label": dump.get("dax_label", ""),
            "user": dump.get("user") or _owner(submit_dir),
            "submit_dir": str(folder.absolute()),
            "dag": str(dag.relative_to(folder) if dag.is_relative_to(folder) else dag.absolute()),
            "host": _host(dump.get("submit_hostname", "")),
            "root": root or dump.get("root_wf_uuid") or workflow,
            "parent": parent,
            "planned_at": planned_at,
        },
    )


def _planned_at(text: str) -> float:
    """Pegasus's ``20261121T212105+0000``; 0 for anything else."""
    try:
        at = calendar.timegm(time.strptime(text[:15], "%Y%m%dT%H%M%S"))
        zone = int(text[15:18]) * 3600 + int(text[15] + text[18:20]) * 60 if text[15:] else 0
    except (ValueError, OverflowError):
        return 0.0
    return float(at - zone)


def _written_at(submit_dir: SubmitDir) -> float:
    try:
        return submit_dir.dag.stat().st_mtime
    except OSError:
        return 0.0


def _owner(submit_dir: SubmitDir) -> str:
    try:
        return pwd.getpwuid(submit_dir.path.stat().st_uid).pw_name
    except (OSError, KeyError):
        return ""


def _host(said: str) -> str:
    return said if said not in ("", "localhost") else os.uname().nodename
