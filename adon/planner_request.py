"""The process that the planner plug-in starts: ``python -I -m adon.planner_request``.

A workflow as JSON on standard input; on standard output ``job<TAB>site`` for every job, with
``<TAB>priority`` where it gets one, and a last line ``end<TAB>count<TAB>policy<TAB>makespan``.
Notes go to standard error, one line each. A request that cannot be used is one line there and exit
status 2; docs/planner-plugin.md describes all of it.
"""

from __future__ import annotations

import gc
import io
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, TextIO

from network_provisioner.base.detached import detached
from network_provisioner.base.errors import AdonError
from pegasus_hooks.plugin.inputs import WARNING, inputs_of
from pegasus_hooks.plugin.request import Request, parse_request
from pegasus_hooks.plugin.together import MOST_TRIALS, MapIt, bind, settle
from site_selector.catalogs.replicas import Note, find_replicas
from site_selector.estimates.estimating import estimate_world, subjects
from site_selector.estimates.input_sizes import with_history
from site_selector.estimates.plans import Plan
from site_selector.estimates.running import Live
from site_selector.estimates.world import (
    MeasurementSource,
    NoMeasurements,
    World,
    estimates_dict,
)
from site_selector.inputs import Inputs, size_note
from site_selector.mapping.describe import describe, no_room, queue_reasons
from site_selector.mapping.estimator import Assignment, Estimator
from site_selector.mapping.kernels import compiled
from site_selector.mapping.mapper import map_problem, worlds_to_draw
from site_selector.mapping.narrow import worthwhile_sites
from site_selector.mapping.placement import Forecast, queue_lines, write_placements
from site_selector.mapping.placement import Mapping as SiteMapping
from site_selector.mapping.policies import VARIANTS, list_schedule, random_sites, round_robin
from site_selector.mapping.reasons import range_text, seconds
from site_selector.mapping.robust import forecast_of
from site_selector.mapping.takes import plan_of
from site_selector.mapping.uncertainty import uncertainty_of
from site_selector.problem import NEVER_S, Problem, build_problem

if TYPE_CHECKING:
    from adon.planning.plans import Plans

SEED = 0
QUICK = ", a first mapping without search"
_GRACE_S = 5.0  # after the planner has given up
_COMPILING_S = 600.0
_REASONS_S = 300.0
_DRAWS = 5
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True, slots=True)
class MappingAnswer:
    """Sites and priorities by job id; the policy and the expected makespan in seconds are for the
    log. ``tell`` says why, which takes longer than to choose; ``plan`` what it will take."""

    sites: Mapping[str, str]
    priorities: Mapping[str, int]
    policy: str
    makespan_s: float
    last: bool
    tell: Callable[[], SiteMapping]
    plan: Callable[[], Plan]

    def write(self, out: TextIO) -> None:
        """The lines of the answer; after those of one that is not the last, a better one follows
        if there is time."""
        lines = []
        for job, site in self.sites.items():
            more = f"\t{self.priorities[job]}" if job in self.priorities else ""
            lines.append(f"{_escaped(job)}\t{_escaped(site)}{more}\n")
        word = "end" if self.last else "so far"
        lines.append(f"{word}\t{len(self.sites)}\t{self.policy}\t{self.makespan_s:.3f}\n")
        out.writelines(lines)
        out.flush()


def answers(request: Request, note: Note) -> Iterator[MappingAnswer]:
    """Map the workflow of a request with what is known now: a quick mapping first, lest the good
    one come too late. Raises InputError."""
    find = partial(
        find_replicas,
        files=request.replica_files,
        directories=request.input_directories,
        note=note,
        properties=request.replica_properties,
    )
    inputs = inputs_of(request, find, note)
    if request.config is not None:
        from adon.planning.placement import within_template  # noqa: PLC0415  # see _sources

        inputs = within_template(inputs, Path(request.config), note)
    output_site = ",".join(request.output_sites) or None
    measured, live, plans = _sources(request, note, *subjects(inputs, output_site))
    inputs = with_history(inputs, measured or NoMeasurements(), time.time())
    if inputs.estimated:
        note(size_note(inputs))
    answer = _mapper(request, note, inputs, measured, live, output_site)
    with compiled.without_compiling():
        first = answer(False)
    yield first
    last = answer(True)
    trial = 1
    while plans is not None and not plans.leave(last.plan()) and trial < plans.TRIALS:
        trial += 1
        live = replace(live, plans=plans.read())
        note("another workflow was planned meanwhile: this one is mapped again")
        last = _mapper(request, note, inputs, measured, live, output_site)(True)
    yield last


def _mapper(
    request: Request,
    note: Note,
    inputs: Inputs,
    measured: MeasurementSource | None,
    live: Live,
    output_site: str | None,
) -> Callable[[bool], MappingAnswer]:
    """What maps the workflow with what is known now: quickly, or well."""
    world = estimate_world(inputs, measured, now=time.time(), live=live, output_site=output_site)
    problem = build_problem(inputs, world, output_site)
    tasks = {task.id: task for task in request.tasks}
    bound = bind(problem, {job: (task.group, task.cluster) for job, task in tasks.items()})
    if bound.loose:
        note(
            "clusters that wait for each other, or of which no site can run all jobs: their jobs "
            "share a site where one can run them"
        )
    whole = bound.merged.problem
    kinds = [inputs.workflow.jobs[job].transformation for job in whole.jobs]
    doubt = uncertainty_of(inputs, world, whole)
    estimator = Estimator(whole)
    priorities = {} if whole.by_level else {
        task.id: int(estimator.priority[part])
        for task, part in zip(map(tasks.__getitem__, problem.jobs), bound.merged.part, strict=True)
        if task.kind == "job"
    }  # fmt: skip

    def good(candidate: Problem) -> tuple[Assignment, str]:
        chosen = map_problem(candidate, kinds, SEED, doubt)
        return chosen.assignment, chosen.policy

    def answer(last: bool) -> MappingAnswer:
        way: MapIt = good if last else quick
        trials = MOST_TRIALS if last else 0
        best, policy = settle(whole, bound.groups, way, estimator.score, trials)
        expected_s = estimator(best).makespan_s
        forecast = None
        if last and doubt.matters:
            forecast = forecast_of(estimator, kinds, doubt, best, worlds_to_draw(whole), SEED)
            expected_s = min(forecast.median_s, NEVER_S)
        sites = bound.merged.expand(best)
        if last:
            waits = queue_lines(queue_reasons(problem, world, sites).values())
            for line in (*waits, *no_room(whole, estimator.room, best)):
                note(WARNING + line)
        return MappingAnswer(
            {job: problem.places[site] for job, site in zip(problem.jobs, sites, strict=True)},
            priorities,
            policy + range_text(forecast) + (_at_one_site(estimator, best) if last else QUICK),
            expected_s,
            last=last,
            tell=partial(placement_reasons, inputs, world, problem, sites, policy, forecast),
            plan=lambda: plan_of("", whole, best, estimator(best), time.time()),
        )

    return answer


def _sources(
    request: Request, note: Note, sites: Collection[str], transformations: Collection[str]
) -> tuple[MeasurementSource | None, Live, Plans | None]:
    """And where plans are: this one is left there if it will run."""
    if request.config is None:
        return None, Live(), None
    # What reads configurations takes a third of a small workflow's time to import.
    from adon.planning.placement import sources  # noqa: PLC0415
    from adon.planning.plans import plans_of  # noqa: PLC0415

    def say(line: str) -> None:
        note(WARNING + line)

    config = Path(request.config)
    measured, live = sources(sites, transformations, config=config, say=say)
    if measured.note:  # who could not be asked for measurements is not asked for plans
        return measured, live, None
    plans = plans_of(config, request.submit_dir or "")
    return measured, replace(live, plans=plans.read()), plans if request.submit_dir else None


def quick(problem: Problem) -> tuple[Assignment, str]:
    """The best of three that cost next to nothing."""
    estimator = Estimator(problem)
    mapping = {
        name: list_schedule(problem, estimator.rank, VARIANTS[name]) for name in ("data", "chains")
    }
    mapping["round-robin"] = round_robin(problem)
    best = min(mapping, key=lambda name: (estimator.score(mapping[name]), name))
    return mapping[best], best


def _at_one_site(estimator: Estimator, chosen: Assignment) -> str:
    """What the mapping is better than: when all would end with every job at the best other site;
    empty if no other can run all that have a choice."""
    problem = estimator.problem
    sites = []
    for site, name in enumerate(problem.places[: problem.n_sites]):
        if any(site not in allowed for allowed in problem.allowed if len(allowed) > 1):
            continue
        there = [
            site if site in allowed else now
            for now, allowed in zip(chosen, problem.allowed, strict=True)
        ]
        if there != list(chosen) and (end := estimator.makespan(there)) < NEVER_S:
            sites.append((end, name))
    return f"; all at {min(sites)[1]}: {seconds(min(sites)[0])}" if sites else ""


def placement_reasons(
    inputs: Inputs,
    world: World,
    problem: Problem,
    sites: Sequence[int],
    policy: str,
    forecast: Forecast | None = None,
) -> SiteMapping:
    """An assignment of sites with the reason for each; of hundreds of sites those are alternatives
    that a search would look at."""
    estimator = Estimator(problem)
    schedule = estimator(tuple(sites))
    places = {*worthwhile_sites(problem).tolist(), *sites}
    places.update(range(problem.n_sites, len(problem.places)))
    placements = describe(inputs, world, problem, sites, schedule, places=places)
    return SiteMapping(
        inputs.workflow.name,
        policy,
        schedule.makespan_s,
        {"random": _pegasus_s(problem, estimator)},
        placements,
        estimates_dict(world, {problem.places[place] for place in places}),
        forecast=forecast,
    )


def _pegasus_s(problem: Problem, estimator: Estimator) -> float:
    """Seconds that it would take with Pegasus's own choice of sites; infinite where that lets a
    job wait for ever."""
    draws = (estimator.makespan(random_sites(problem, Random(seed))) for seed in range(_DRAWS))
    median_s = median(draws)
    return median_s if median_s < NEVER_S else math.inf


def leave_reasons(submit_dir: Path, tell: Callable[[], SiteMapping]) -> None:
    """Ask ``tell``, and write its answer into ``submit_dir``, by a process that outlives
    this one and has no parent. Nothing where the directory is not there."""

    def write() -> None:
        signal.setitimer(signal.ITIMER_REAL, _REASONS_S)
        os.nice(10)
        write_placements(submit_dir, tell(), time.time())

    if submit_dir.is_dir():
        with suppress(OSError):  # too many processes: then the reasons are not recorded
            detached(write)


def _compile() -> None:
    """For the next workflow: the planner may end this process before it has compiled all."""
    signal.setitimer(signal.ITIMER_REAL, _COMPILING_S)
    os.nice(10)
    os.execv(sys.executable, [sys.executable, "-I", "-m", "site_selector.warm"])


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def main() -> int:
    """Exit status 0, or 2 with one line on standard error."""

    def note(line: str) -> None:
        print(" ".join(line.split()), file=sys.stderr, flush=True)

    gc.disable()  # short-lived, and nearly all it makes is needed to its end
    try:
        request = parse_request(sys.stdin.buffer.read())
        # Nobody waits any longer then, whatever holds us up.
        signal.setitimer(signal.ITIMER_REAL, request.limit_s + _GRACE_S)
        out = io.TextIOWrapper(sys.stdout.buffer, "utf-8", "surrogatepass", newline="\n")
        for answer in answers(request, note):
            if answer.last and request.submit_dir:
                # Before the answer: the planner ends this process with it.
                leave_reasons(Path(request.submit_dir), answer.tell)
            answer.write(out)
            if not answer.last and not compiled.is_warm():
                with suppress(OSError):  # too many processes
                    detached(_compile)
    except AdonError as error:
        note(str(error))
        return 2
    except BrokenPipeError:
        return 2  # the planner has given up
    return 0


if __name__ == "__main__":
    sys.exit(main())
