"""A watched workflow, and who may listen to what happens to its jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from monitors.jobs.jobs import Jobs
from network_provisioner.client.hookconfig import HookConfig


@dataclass(frozen=True, slots=True)
class Watched:
    """A workflow that is watched: its uuid, where it was planned to, its DAG and the configuration
    of its hooks."""

    workflow: str
    submit_dir: Path
    dag: Path
    config: HookConfig


class WorkflowListener(Protocol):
    """Hears what happens. Called by one thread only; what it raises is logged, and costs nobody
    else anything. It must not wait: a call of a broker has that broker's time limit."""

    def on(self, jobs: Jobs, name: str, /) -> None:
        """An event changed the state of the job ``name``, or of the DAG where that is empty. They
        come in the order of the workflow's logs; a watcher that starts later than its workflow
        tells everything from the beginning."""
        ...

    def tick(self, now: float, /) -> None:
        """Called once a second or more often, after all that happened was told. Unix seconds."""
        ...


# Makes the listener to a workflow, None where there is nothing to listen for. It is called when the
# workflow is first seen; the watcher lets go of the listener when the workflow has ended.
ListenerOf = Callable[[Watched], WorkflowListener | None]
