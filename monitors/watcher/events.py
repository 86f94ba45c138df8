"""What happens to the jobs of a workflow and to its DAGMan, and who may listen to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from network_provisioner.client.hookconfig import HookConfig


class EventKind(StrEnum):
    """The kinds of events. Those of the DAG have no job."""

    PRE_STARTED = "pre_started"
    PRE_ENDED = "pre_ended"
    SUBMITTED = "submitted"
    RUNNING = "running"
    HELD = "held"
    UNHELD = "unheld"  # let go by condor_release, waiting again
    EVICTED = "evicted"  # stopped, and waiting to be run again
    ENDED = "ended"
    REMOVED = "removed"
    POST_ENDED = "post_ended"

    DAG_STARTED = "dag_started"
    DAG_ENDED = "dag_ended"  # for good: done, failed, or removed
    DAG_GONE = "dag_gone"  # killed or held; the schedd may start it again, its jobs run on


@dataclass(frozen=True, slots=True)
class Event:
    """One of them. ``at`` in Unix seconds by the submit host's clock. ``code`` is how a script, a
    job or DAGMan ended, minus the signal where one ended it, None where nobody says. ``cluster`` is
    HTCondor's number for the submission of the job; SUBMITTED comes twice, without a number when
    DAGMan has heard of it."""

    what: EventKind
    at: float
    job: str = ""
    code: int | None = None
    cluster: int = 0


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

    def on(self, event: Event, workflow: Watched, /) -> None:
        """``event`` happened, in the order of the workflow's logs. A watcher that starts later than
        its workflow tells everything from the beginning."""
        ...

    def tick(self, now: float, /) -> None:
        """Called once a second or more often, after all that happened was told. Unix seconds."""
        ...


# Makes the listener to a workflow, None where there is nothing to listen for. It is called when the
# workflow is first seen; the watcher lets go of the listener when the workflow has ended.
ListenerOf = Callable[[Watched], WorkflowListener | None]
