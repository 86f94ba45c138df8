"""What would have to be different for one job to be better off elsewhere in a whole mapping.

A job that is not where its own T_t is least is where it is for the sake of the whole: no formula
tells what would change that. So one number after the other is changed, the whole mapping is played
through with the job where it is and where its T_t is least, and the point where the order of the
two turns is narrowed down. Every limit that is returned was tried: there the job is better off
moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from network_provisioner.base.units import BITS_PER_BYTE
from site_selector.cost import Array
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.placement import Alternative, Mapping, Placement
from site_selector.mapping.reasons import Flip, flip_text, why_not_least
from site_selector.problem import NEVER_S, Problem

_FURTHEST = 1e4  # a number that would have to change by more than this factor explains nothing
_CLOSE = 1.01  # limits are found to within one percent
_LEAST_WAIT_S = 1e-3
# Steps of the estimator that a person waits for, in jobs looked at: some seconds.
PATIENCE = 1_500_000
_TRIES = 4  # times as much for what the workflow would lose by a move: one step and not hundreds


@dataclass(frozen=True, slots=True)
class _Knob:
    """One number of the problem: ``turned(x)`` is the problem with the value ``x`` in its place."""

    what: str
    subject: str
    now: float
    rises: bool
    turned: Callable[[float], Problem]


def reconsider(
    problem: Problem,
    names: Sequence[str],
    assignment: Sequence[int],
    job: int,
    to_site: int,
    paths: Sequence[tuple[int, int]] = (),
) -> tuple[Flip, ...]:
    """Single changes with which ``job`` would be better at ``to_site``, all other jobs staying.

    ``names``: each job's transformation, whose Γ_c is one number per site. ``paths``: the pairs of
    places to look at. "Better" is an earlier end of the workflow, or the same end with less
    computing and moving. The change that takes least comes first. None at all where it is better
    there as it is: the mapping was then chosen for what the estimates do not say.
    """
    new_assignment = list(assignment)
    new_assignment[job] = to_site

    def better(changed: Problem) -> bool:
        run = Estimator(changed)
        return run.score(new_assignment) < run.score(assignment)

    changes: list[Flip] = []
    if better(problem):
        return ()
    for knob in _knobs(problem, names, assignment[job], to_site, names[job], paths):
        limit = _turn(knob, better)
        if limit is not None:
            winner = problem.places[to_site]
            gamma = "Γ_a" if knob.what == "rate" else ""
            changes.append(
                Flip(winner, knob.what, knob.subject, knob.now, limit, knob.rises, gamma)
            )
    return tuple(sorted(changes, key=lambda f: (f.factor, f.what, f.subject)))


def with_changes(
    problem: Problem,
    names: Sequence[str],
    mapping: Mapping,
    jobs: Sequence[str] | None = None,
    patience: int = PATIENCE,
) -> tuple[Mapping, dict[str, tuple[Flip, ...]]]:
    """The mapping with what would change a placement added to the reasons of those jobs that are
    not where their own T_t is least, and what the workflow would lose by their move; and these
    flips by job.

    ``jobs`` limits it to some. Jobs are looked at in the order of the mapping until ``patience``
    (jobs played through) is at its end; the others keep their reasons as they are.
    """
    index = {job: j for j, job in enumerate(problem.jobs)}
    place = {name: i for i, name in enumerate(problem.places)}
    sites = mapping.sites
    assignment = [place[sites[job]] for job in problem.jobs]
    estimator = Estimator(problem)
    stay_s = estimator.makespan(assignment)
    out: list[Placement] = []
    changes: dict[str, tuple[Flip, ...]] = {}
    tries = _TRIES * patience
    for placement in mapping.placements:
        pair = _elsewhere(placement) if jobs is None or placement.job in jobs else None
        if pair is None or tries <= 0:
            out.append(placement)
            continue
        chosen, least = pair
        j, to_site = index[placement.job], place[least.site]
        new_assignment = [*assignment[:j], to_site, *assignment[j + 1 :]]
        reason = why_not_least(chosen, least, stay_s, estimator.makespan(new_assignment))
        tries -= len(problem.jobs)
        flips: tuple[Flip, ...] = ()
        if patience > 0:
            ends = sorted({m.path for a in pair for m in a.moves})
            paths = [(place[a], place[b]) for a, b in (e.split(">") for e in ends)]
            flips = reconsider(problem, names, assignment, j, to_site, paths)
            patience -= 30 * (4 + len(paths)) * len(problem.jobs)
            changes[placement.job] = flips
        # What the mapping knew of other worlds stays; that it had not tried this does not.
        unknown = why_not_least(chosen, least, stay_s, None)
        reason = reason if flips or placement.reason == unknown else placement.reason
        out.append(replace(placement, reason=_added(reason, least, flips)))
    return replace(mapping, placements=tuple(out)), changes


def _elsewhere(placement: Placement) -> tuple[Alternative, Alternative] | None:
    """Where a job is and where its own T_t is least; None if that is the same."""
    chosen = next((a for a in placement.alternatives if a.site == placement.site), None)
    if chosen is None or placement.alternatives[0].t_t_s >= chosen.t_t_s:
        return None
    return chosen, placement.alternatives[0]


def _added(reason: str, least: Alternative, flips: Sequence[Flip]) -> str:
    if not flips:
        return reason
    condition = " or ".join(flip_text(f) for f in flips[:2])
    return f"{reason}; the job would be better at {least.site} if {condition}"


def _knobs(
    problem: Problem,
    names: Sequence[str],
    here: int,
    there: int,
    name: str,
    paths: Sequence[tuple[int, int]],
) -> list[_Knob]:
    p, out = problem, []
    rows = np.array([other == name for other in names])
    bytes_of = float(np.median(p.input_bytes[rows]))

    queue = np.broadcast_to(p.queue_s, p.compute_s.shape)

    def waits(site: int, now: float) -> Callable[[float], Problem]:
        # Kinds of jobs continue waiting longer and shorter than others.
        rest = queue[:, site] - now
        return lambda value: replace(
            p, queue_s=_put(queue, (slice(None), site), np.maximum(0.0, rest + value))
        )

    def computes(site: int, now: float) -> Callable[[float], Problem]:
        at, seconds = (rows, site), p.compute_s[rows, site]
        return lambda value: replace(p, compute_s=_put(p.compute_s, at, seconds * now / value))

    def carries(path: tuple[int, int], now: float) -> Callable[[float], Problem]:
        # Other transfers continue sharing the link as they do now, in proportion.
        busy = p.occupied_per_byte[path]
        return lambda value: replace(
            p,
            seconds_per_byte=_put(p.seconds_per_byte, path, BITS_PER_BYTE / value),
            occupied_per_byte=_put(p.occupied_per_byte, path, busy * now / value),
        )

    for site, better in ((there, True), (here, False)):
        wait = float(np.median(queue[rows, site]))
        if wait < NEVER_S and not (better and wait <= 0):
            out.append(_Knob("t_q", p.places[site], wait, not better, waits(site, wait)))
        seconds = float(np.median(p.compute_s[rows, site]))
        if 0 < seconds < NEVER_S:
            now = bytes_of / seconds
            out.append(_Knob("gamma_c", p.places[site], now, better, computes(site, now)))
    for src, dst in paths:
        per_byte = float(p.seconds_per_byte[src, dst])
        if 0 < per_byte < NEVER_S:
            now, path = BITS_PER_BYTE / per_byte, f"{p.places[src]}>{p.places[dst]}"
            out += [_Knob("rate", path, now, up, carries((src, dst), now)) for up in (True, False)]
    return out


def _put(values: Array, where: Any, value: Any) -> Array:
    """A copy with ``value`` in one place."""
    changed = values.copy()
    changed[where] = value
    return changed


def _turn(knob: _Knob, better: Callable[[Problem], bool]) -> float | None:
    """The value nearest to the present one, to within a percent, at which ``better`` was seen."""
    start = max(knob.now, _LEAST_WAIT_S)
    far = start * _FURTHEST if knob.rises else start / _FURTHEST
    if not better(knob.turned(far)):
        return None
    near = start
    while max(far / near, near / far) > _CLOSE:
        middle = float(np.sqrt(near * far))
        if better(knob.turned(middle)):
            far = middle
        else:
            near = middle
    return far
