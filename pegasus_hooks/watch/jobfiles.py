"""What a job's own files say: what it asks for, and what its transfer moved."""

from __future__ import annotations

from monitors.planned import submitdir
from network_provisioner.errors import InputError
from network_provisioner.model import TransitRequest
from pegasus_hooks.prepost import postjob, prejob
from pegasus_hooks.watch.events import Watched
from pegasus_hooks.watch.papers import Pair, Papers
from pegasus_hooks.watch.returns import Moved


def requests_of(watched: Watched, papers: Papers) -> list[TransitRequest]:
    """What the PRE of this job asks for. Raises InputError."""
    place, listing, _ = prejob.place_of(watched.submit_dir, papers.job, papers.retry, papers.at)
    return [request for request, _ in prejob.requests_of(place, listing, watched.config)]


def measure(watched: Watched, papers: Papers, pair: Pair) -> Moved:
    """What the transfer of a pair moved, as its POST would tell it."""
    decision = submitdir.read_json(papers.file)
    if not papers.same_run(Papers.of(papers.file, decision)):
        return Moved()  # the records are of another run by now
    try:
        place, listing, _ = prejob.place_of(watched.submit_dir, papers.job, papers.retry, papers.at)
        moves = prejob.moves_at(place, listing)
        measured = postjob.measure(place, listing, moves, decision) if moves else {}
    except (InputError, OSError):  # damaged, or gone: what is given back matters more
        return Moved()
    if (pair.src, pair.dst) not in measured:
        return Moved()
    result, used = measured[pair.src, pair.dst]
    used = {**used, "retries": result.failed_attempts}
    return Moved(result.n_bytes or 0, result.seconds, used)
