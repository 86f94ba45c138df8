"""What a job's own files say to the watcher: what it requests, and what its transfer moved."""

from __future__ import annotations

from monitors.watcher.actions import Moved
from monitors.watcher.decision_file import DecisionFile, Pair
from monitors.watcher.events import Watched
from monitors.workflows.planned import job_files
from network_provisioner.base.errors import InputError
from network_provisioner.base.model import TransitRequest
from pegasus_hooks.prepost import postjob, prejob


def requests_of(watched: Watched, decision: DecisionFile, /) -> list[TransitRequest]:
    """What the PRE of this job requests. Raises InputError."""
    place, listing, _ = prejob.place_of(
        watched.submit_dir, decision.job, decision.retry, decision.at
    )
    return [request for request, _ in prejob.requests_of(place, listing, watched.config)]


def measure(watched: Watched, decision: DecisionFile, pair: Pair, /) -> Moved:
    """What the transfer of a pair moved, as its POST would tell it."""
    data = job_files.read_json(decision.file)
    if not decision.same_run(DecisionFile.of(decision.file, data)):
        return Moved()  # the records are of another run by now
    try:
        place, listing, _ = prejob.place_of(
            watched.submit_dir, decision.job, decision.retry, decision.at
        )
        moves = prejob.moves_at(place, listing)
        measured = postjob.measure(place, listing, moves, data) if moves else {}
    except (InputError, OSError):  # damaged, or gone: what is given back matters more
        return Moved()
    if (pair.src, pair.dst) not in measured:
        return Moved()
    result, used = measured[pair.src, pair.dst]
    used = {**used, "retries": result.failed_attempts}
    return Moved(result.n_bytes or 0, result.seconds, used)
