"""Snakemake's scheduler ``adon``: ADON's mapper orders the jobs and chooses their sites.

    snakemake --scheduler adon --scheduler-adon-config adon.yml --scheduler-adon-sites mu,tacc

The DAG goes to ADON's mapper as Pegasus's planner sends it (docs/planner-plugin.md), in a process
of its own; until that answers, Snakemake's priorities count. A job's site becomes its
``requirements``, for the executor ``htcondor``. Where ADON fails, the greedy scheduler decides.
"""

# Snakemake reads the types of settings: they must not become strings, nor unions by |.
# ruff: noqa: UP045

import json
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Optional

from snakemake_interface_scheduler_plugins.base import SchedulerBase
from snakemake_interface_scheduler_plugins.settings import SchedulerSettingsBase

_METADATA = Path(".snakemake/metadata")  # a file for each output, with its rule and times
_MOST_RECORDS = 20_000


def _option(meaning: str, default: Any = None) -> Any:
    return field(default=default, metadata={"help": meaning})


@dataclass
class SchedulerSettings(SchedulerSettingsBase):
    sites: Optional[str] = _option(
        "Sites that jobs can run at, as AdonSite of the slots, with commas between; without, ADON "
        "is not asked. With several, jobs get HTCondor requirements for theirs."
    )
    config: Optional[str] = _option("adon.yml, which says what is known of sites and network.")
    python: Optional[str] = _option("Python that has ADON, such as /opt/adon/bin/python.")
    limit: Optional[int] = _option("Seconds that the mapper may take; default 30.", 30)


class Placed(NamedTuple):
    """What the mapper says of a job."""

    site: str
    priority: int


class Scheduler(SchedulerBase):
    """See :class:`SchedulerBase`."""

    def __post_init__(self) -> None:
        self._placed: dict[Any, Placed] = {}
        self._known: set[Any] = set()  # jobs that the mapper was asked for
        self._steered: set[Any] = set()
        self._thread: threading.Thread | None = None
        self._failed = False

    def select_jobs(
        self,
        selectable_jobs: Sequence[Any],
        remaining_jobs: Sequence[Any],
        available_resources: Mapping[str, int | str],
        input_sizes: Mapping[Any, int | None],
    ) -> Sequence[Any] | None:
        """Those that fit, the mapper's first ones first. ADON is asked in a thread, so that this
        takes milliseconds."""
        settings, sites = self.settings, list[str]()
        if isinstance(settings, SchedulerSettings) and settings.sites:
            if self._failed:
                return None
            sites = settings.sites.split(",")
            self._ask(selectable_jobs, settings, sites)
        placed = self._placed
        selected = fitting(in_order(selectable_jobs, placed), available_resources)
        if len(sites) > 1:
            self._steer(selected, placed)
        return selected

    def _ask(
        self, selectable: Iterable[Any], settings: SchedulerSettings, sites: Sequence[str]
    ) -> None:
        """Has the mapper asked where there are jobs that it does not know: checkpoints add some."""
        is_asked = self._thread is not None and self._thread.is_alive()
        if is_asked or all(job in self._known for whole in selectable for job in members(whole)):
            return
        jobs = list(self.dag.needrun_jobs())
        self._known.update(jobs)
        after = {job: list(self.dag.job_dependencies(job)) for job in jobs}
        self._thread = threading.Thread(
            target=self._map, args=(jobs, after, sites, settings), daemon=True
        )
        self._thread.start()

    def _map(
        self,
        jobs: Sequence[Any],
        after: Mapping[Any, Sequence[Any]],
        sites: Sequence[str],
        settings: SchedulerSettings,
    ) -> None:
        limit_s = float(settings.limit or 30)
        try:
            request = request_of(jobs, after, sites, run_times(_METADATA))
            config = settings.config and str(Path(settings.config).absolute())
            request |= {"limit_s": limit_s, "config": config}
            command = [settings.python or sys.executable, "-I", "-m", "adon.planner_request"]
            done = subprocess.run(
                command,
                input=json.dumps(request),
                capture_output=True,
                text=True,
                timeout=limit_s + 30.0,  # to start
                check=False,
            )
            if done.returncode:
                raise ValueError((done.stderr.strip() or f"exit code {done.returncode}")[-500:])
            placed = answer_of(done.stdout, jobs)
        except Exception as error:  # ADON never fails a workflow
            self.logger.warning(f"ADON: {error}: the greedy scheduler decides")
            self._failed = True
            return
        self._placed = {**self._placed, **placed}  # at once: another thread reads it
        self.logger.info(f"ADON: {len(placed)} jobs are mapped")

    def _steer(self, selected: Iterable[Any], placed: Mapping[Any, Placed]) -> None:
        for job in (job for whole in selected for job in members(whole)):
            if job in placed and job not in self._steered:
                self._steered.add(job)  # a name may be given once; what the rule says stands
                requirement = f'(TARGET.AdonSite == "{placed[job].site}")'
                job.add_aux_resource("requirements", requirement)


def members(job: Any) -> Iterable[Any]:
    """The jobs of a group, else the job itself."""
    jobs = getattr(job, "jobs", (job,))
    return jobs() if callable(jobs) else jobs


def in_order(jobs: Iterable[Any], placed: Mapping[Any, Placed]) -> list[Any]:
    """By Snakemake's priorities, then by the mapper's; the highest first."""

    def first(job: Any) -> tuple[int, int]:
        own = (placed[member].priority for member in members(job) if member in placed)
        return -job.priority, -max(own, default=0)

    return sorted(jobs, key=first)


def fitting(jobs: Iterable[Any], available: Mapping[str, int | str]) -> list[Any]:
    """Of jobs in this order, those for which there are resources."""
    left = {name: amount for name, amount in available.items() if isinstance(amount, int)}
    selected = []
    for job in jobs:
        resources = job.scheduler_resources.items()
        wanted = {n: a for n, a in resources if n in left and isinstance(a, int)}
        if all(amount <= left[name] for name, amount in wanted.items()):
            selected.append(job)
            for name, amount in wanted.items():
                left[name] -= amount
    return selected


def run_times(metadata: Path) -> dict[str, float]:
    """Median seconds of each rule's jobs, as Snakemake recorded them in this directory."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    files = (path for path in metadata.glob("**/*") if path.is_file())
    for _, path in zip(range(_MOST_RECORDS), files, strict=False):
        with suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads(path.read_text(encoding="utf-8"))
            took_s = float(record["endtime"]) - float(record["starttime"])
            if took_s > 0:
                seconds[str(record["rule"])].append(took_s)
    return {rule: median(values) for rule, values in seconds.items()}


def request_of(
    jobs: Sequence[Any],
    after: Mapping[Any, Sequence[Any]],
    sites: Sequence[str],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """The mapper's request (docs/planner-plugin.md). A job's run time is what its rule's jobs took,
    else its resource ``runtime`` (minutes)."""
    number = {job: n for n, job in enumerate(jobs)}
    rules = {rule: n for n, rule in enumerate(dict.fromkeys(str(job.rule) for job in jobs))}
    files: dict[str, int] = {}
    written = {str(file) for job in jobs for file in job.output}

    def indices(paths: Iterable[Any]) -> list[int]:
        return list({files.setdefault(str(path), len(files)): None for path in paths})

    rows = []
    for job in jobs:
        resources, rule = job.scheduler_resources, str(job.rule)
        minutes = None if rule in seconds else resources.get("runtime")
        rows.append(
            {
                "id": str(number[job]),
                "transformation": rules[rule],
                "runtime": str(minutes * 60) if isinstance(minutes, int) and minutes else None,
                "cores": str(max(1, int(resources.get("_cores", 1)))),
                "reads": indices(job.input),
                "writes": indices(job.output),
                "after": [number[other] for other in after[job] if other in number],
            }
        )
    return {
        "adon": 1,
        "workflow": "snakemake",
        "priorities": True,
        "sites": [{"name": site} for site in sites],
        "transformations": [
            {
                "name": f"snakemake::{rule}",
                "sites": list(sites),
                "runtimes": {s: str(seconds[rule]) for s in sites if rule in seconds},
            }
            for rule in rules
        ],
        "files": [_file(path, path in written) for path in files],
        "jobs": rows,
    }


def _file(path: str, is_written: bool) -> dict[str, Any]:
    place = Path(path).absolute()
    with suppress(OSError, ValueError):
        if not is_written:
            places = [["local", place.as_uri()]]
            return {"lfn": path, "size": place.stat().st_size, "places": places}
    return {"lfn": path}


def answer_of(text: str, jobs: Sequence[Any]) -> dict[Any, Placed]:
    """The last complete mapping of an answer. Raises ValueError where there is none."""
    placed, lines = dict[Any, Placed](), dict[Any, Placed]()
    for row in (line.split("\t") for line in text.splitlines()):
        if row[0] in ("end", "so far"):
            placed, lines = lines, {}
        else:
            lines[jobs[int(row[0])]] = Placed(row[1], int(row[2]) if len(row) > 2 else 0)
    if not placed:
        raise ValueError("found no mapping in the mapper's answer")
    return placed
