"""What a watcher has to tell the broker of runs: paths for output, why input went without one, and
what transfers came to.

Pure functions of what is known of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from condor_plugins.pool.sites import site_of_match
from condor_plugins.transfers import request_builder
from condor_plugins.transfers.decide import Release
from condor_plugins.transfers.ids import Direction
from condor_plugins.transfers.jobad import number, text
from condor_plugins.transfers.outputsize import Outputs
from condor_plugins.transfers.run_state import Phase, RunState, RunStates
from condor_plugins.transfers.transfer_need import no_transfer
from network_provisioner.base.model import TransitRequest
from network_provisioner.client.hookconfig import HookConfig

RECENT_S = 3600.0  # what happened earlier is nobody's business any more
_TOO_LATE = "best effort: output had been sent before a path could be asked for"
_SILENT = "best effort: the hook before the transfer did not answer"


def requests(
    runs: RunStates, outputs: Outputs, config: HookConfig, now: float, since: float
) -> Iterator[tuple[str, TransitRequest]]:
    """Every request with a mark by which one that was made is known again. ``since`` is when
    somebody began to make them, in Unix seconds: what output went before that is not known."""
    for state in runs:
        if now - state.at > RECENT_S or not _crosses(state, config):
            continue
        mark = f"{state.run.transit('out')}@{state.output.start}"
        if state.phase is Phase.OUTPUT and state.output.start:
            yield mark, _request(state, "out", outputs.expected(state.ad), config)
        elif (sent := _arrived(state)) and state.output.start >= since:
            request = _request(state, "out", sent, config)
            yield mark, replace(request, best_effort=_TOO_LATE)
        if reason := _untold(state):
            size = number(state.ad, "AdonInBytes")
            request = _request(state, "in", None if size is None else int(size), config)
            yield request.id, replace(request, best_effort=reason)


def reports(runs: RunStates, config: HookConfig, now: float) -> Iterator[Release]:
    """What transfers came to that arrived, of those, too, that went without a path: what best
    effort reaches is what paths are weighed against. A report says nothing new of a transit that
    was given back with one."""
    for state in runs:
        if now - state.at > RECENT_S or not _crosses(state, config):
            continue
        answer, size = state.ad.get("AdonInState"), number(state.ad, "AdonInBytes")
        if state.ran and answer != "none" and size and state.input.seconds:
            name = text(state.ad, "AdonInId") or state.run.transit("in")
            yield Release(name, int(size), state.input.seconds, "success")
        if sent := _arrived(state):
            yield Release(state.run.transit("out"), sent, state.output.seconds, "success")


def _arrived(state: RunState) -> int:
    """Bytes of output that arrived, 0 where none did or nobody knows how long it took."""
    known = state.how == "success" and state.output.seconds
    return state.sent_bytes or 0 if known else 0


def nameless(runs: RunStates) -> Iterator[str]:
    """Slots without a site that files were sent to: nothing can be asked for them."""
    for state in runs:
        if state.input.start and not no_transfer(state.ad) and not site_of_match(state.ad):
            yield text(state.ad, "RemoteHost").rpartition("@")[2] or "a slot"


def _request(
    state: RunState, way: Direction, size: int | None, config: HookConfig
) -> TransitRequest:
    return request_builder.request(state.ad, state.run, way, size, config)


def _crosses(state: RunState, config: HookConfig) -> bool:
    return not no_transfer(state.ad) and not request_builder.unmarked(state.ad, config.site or "")


def _untold(state: RunState) -> str:
    """Why input goes without a path where the broker does not know it, empty elsewhere."""
    if not state.input.start:
        return ""
    if "AdonInState" not in state.ad:
        return _SILENT  # killed, or it could not be started
    if state.ad.get("AdonInTold") is not False:
        return ""
    return text(state.ad, "AdonInReason") or _SILENT
