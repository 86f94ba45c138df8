"""What a watcher has to tell the broker of runs: paths for output, why input went without one, and
what transfers came to.

Pure functions of what is known of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from condor_plugins.sites import site_of_match
from condor_plugins.transfers import wanted
from condor_plugins.transfers.course import Course, Courses, Phase
from condor_plugins.transfers.decide import Release
from condor_plugins.transfers.ids import Direction
from condor_plugins.transfers.jobad import number, text
from condor_plugins.transfers.moving import still
from condor_plugins.transfers.outputsize import Outputs
from network_provisioner.base.hookconfig import HookConfig
from network_provisioner.model import TransitRequest

RECENT_S = 3600.0  # what happened earlier is nobody's business any more
_TOO_LATE = "best effort: output had been sent before a path could be asked for"
_SILENT = "best effort: the hook before the transfer did not answer"


def requests(
    courses: Courses, outputs: Outputs, config: HookConfig, now: float, since: float
) -> Iterator[tuple[str, TransitRequest]]:
    """Every request with a mark by which one that was made is known again. ``since`` is when
    somebody began to make them, in Unix seconds: what output went before that is not known."""
    for course in courses:
        if now - course.at > RECENT_S or not _crosses(course, config):
            continue
        mark = f"{course.run.transit('out')}@{course.output.start}"
        if course.phase is Phase.OUTPUT and course.output.start:
            yield mark, _request(course, "out", outputs.expected(course.ad), config)
        elif (sent := _arrived(course)) and course.output.start >= since:
            request = _request(course, "out", sent, config)
            yield mark, replace(request, best_effort=_TOO_LATE)
        if reason := _untold(course):
            size = number(course.ad, "AdonInBytes")
            request = _request(course, "in", None if size is None else int(size), config)
            yield request.id, replace(request, best_effort=reason)


def reports(courses: Courses, config: HookConfig, now: float) -> Iterator[Release]:
    """What transfers came to that arrived, of those, too, that went without a path: what best
    effort reaches is what paths are weighed against. A report says nothing new of a transit that
    was given back with one."""
    for course in courses:
        if now - course.at > RECENT_S or not _crosses(course, config):
            continue
        state, size = course.ad.get("AdonInState"), number(course.ad, "AdonInBytes")
        if course.ran and state != "none" and size and course.input.seconds:
            name = text(course.ad, "AdonInId") or course.run.transit("in")
            yield Release(name, int(size), course.input.seconds, "success")
        if sent := _arrived(course):
            yield Release(course.run.transit("out"), sent, course.output.seconds, "success")


def _arrived(course: Course) -> int:
    """Bytes of output that arrived, 0 where none did or nobody knows how long it took."""
    known = course.how == "success" and course.output.seconds
    return course.sent_bytes or 0 if known else 0


def nameless(courses: Courses) -> Iterator[str]:
    """Slots without a site that files were sent to: nothing can be asked for them."""
    for course in courses:
        if course.input.start and not still(course.ad) and not site_of_match(course.ad):
            yield text(course.ad, "RemoteHost").rpartition("@")[2] or "a slot"


def _request(
    course: Course, way: Direction, size: int | None, config: HookConfig
) -> TransitRequest:
    return wanted.request(course.ad, course.run, way, size, config)


def _crosses(course: Course, config: HookConfig) -> bool:
    return not still(course.ad) and not wanted.unmarked(course.ad, config.site or "")


def _untold(course: Course) -> str:
    """Why input goes without a path where the broker does not know it, empty elsewhere."""
    if not course.input.start:
        return ""
    if "AdonInState" not in course.ad:
        return _SILENT  # killed, or it could not be started
    if course.ad.get("AdonInTold") is not False:
        return ""
    return text(course.ad, "AdonInReason") or _SILENT
