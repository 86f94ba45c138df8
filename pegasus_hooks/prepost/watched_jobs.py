"""What Pegasus's jobs are to the watcher: what they request, what their transfers moved, and who
listens to their workflow.
"""

from __future__ import annotations

import logging
import site
from importlib import import_module

from monitors.watcher.actions import TransferResult, Watched
from monitors.watcher.decision_file import DecisionFile, Pair
from monitors.watcher.held_paths import WorkflowListener
from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from network_provisioner.base.errors import InputError
from network_provisioner.base.model import TransitRequest
from pegasus_hooks.prepost import postjob, prejob
from pegasus_hooks.prepost.prejob import HookedJob

log = logging.getLogger(__name__)
_AHEAD = "pegasus_hooks.advance.listening"  # its ``listener_of`` is a ListenerOf


def requests_of(watched: Watched, decision: DecisionFile, /) -> list[TransitRequest]:
    """What the PRE of this job requests. Raises InputError."""
    return prejob.requests_of(_hooked(watched, decision), watched.config)


def measure(watched: Watched, decision: DecisionFile, pair: Pair, /) -> TransferResult:
    """What the transfer of a pair moved, as its POST would tell it."""
    data = job_files.read_json(decision.file)
    if not decision.same_run(DecisionFile.of(decision.file, data)):
        return TransferResult()  # the records are of another run by now
    try:
        place = _hooked(watched, decision)
        moves = prejob.moves_at(place.files)
        measured = postjob.measure(place, moves, data) if moves else {}
    except (InputError, OSError):  # damaged, or gone: what is released matters more
        return TransferResult()
    if (pair.src, pair.dst) not in measured:
        return TransferResult()
    result, used = measured[pair.src, pair.dst]
    used = {**used, "retries": result.failed_attempts, "files": result.files}
    return TransferResult(result.n_bytes or 0, result.seconds, used)


def _hooked(watched: Watched, decision: DecisionFile) -> HookedJob:
    files = PlannedFiles(watched.submit_dir, decision.job)
    return HookedJob(files, decision.retry, decision.at)


def listener_of(watched: Watched) -> WorkflowListener | None:
    """The listener of one workflow, None if there is none or it cannot be had."""
    if not watched.config.ahead:
        return None
    try:
        # The watcher starts without the packages of the site; predictions read YAML.
        site.main()
        made: WorkflowListener | None = import_module(_AHEAD).listener_of(watched)
    except Exception:  # what is held is released all the same
        log.exception("%s: no advance reservations", watched.workflow)
        return None
    return made
