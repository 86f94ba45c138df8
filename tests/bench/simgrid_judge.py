"""Another judge of mappings: SimGrid 3.32, a simulator of distributed systems with its own network.

``executed`` plays mappings with it; what one costs there is beside what the estimator says. The
program is Debian's ``python3-simgrid``, unpacked into the cache, with the machine's own Python.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from adon.machine.apt import PrivateApt, codename
from adon.machine.cached import Progress, cache_root, make_once
from adon.machine.packages import PackageSet, select
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.kernels.data import by_urgency

_INSIDE = Path(__file__).with_name("simgrid_inside.py")
_SET = PackageSet("simgrid", "SimGrid", ("python3-simgrid",), (), ())


def home() -> Path:
    """Where SimGrid's library and bindings are once they are installed.

    :raises MissingError: no Debian.
    """
    return cache_root() / f"simgrid-{codename()}"


def installed(progress: Progress) -> Path:
    """The same, after it was installed where it was not.

    :raises MissingError: no Debian, no network, no space.
    """
    return make_once(home(), "SimGrid", 100_000_000, partial(_unpack, home()), progress)


def _unpack(place: Path, work: Path) -> None:
    apt = PrivateApt(work / "apt", None)
    apt.update()
    debs = select(_SET, apt.plan(_SET.packages))
    root = work / "root"
    root.mkdir(exist_ok=True)
    for archive in apt.download(debs):
        apt.extract(archive, root)
    root.rename(place)


#: SimGrid's network without TCP's overheads, which ADON's measured rates contain already; and as
#: it comes: payload is 97 % of a link, and a round trip costs 13 latencies.
FLUID = ("--cfg=network/model:CM02", "--cfg=network/TCP-gamma:0", "--cfg=network/crosstraffic:0")
AS_IT_COMES = ("--cfg=network/crosstraffic:0",)


def case(
    run: Estimator, site: Sequence[int], *, our_turns: bool, options: Sequence[str] = FLUID
) -> dict[str, Any]:
    """A mapping as the program inside takes it.

    HTCondor does not say which of two jobs of one priority that come at the same moment starts
    first, nor Pegasus which of two stage jobs takes a file along. With ``our_turns`` it is the one
    that the estimator ``run`` takes, else whichever comes first in SimGrid and in the workflow.
    """
    problem, priority = run.problem, run.priority
    turn = np.arange(len(priority))
    if our_turns:
        turn[by_urgency(priority)] = np.arange(len(priority))
        priority = -np.argsort(np.argsort(run(site).start_s, kind="stable"))
    with np.errstate(divide="ignore"):
        rates = np.where(problem.seconds_per_byte > 0, 1 / problem.seconds_per_byte, 0.0)
    names = ("parents", "children", "reads", "writes", "readers", "producer", "size", "holders")
    return {name: getattr(problem, name) for name in names} | {
        "returns": problem.returns,
        "output": problem.output,
        "level": problem.level,
        "workers": problem.workers,
        "compute_s": problem.compute_s.tolist(),
        "queue_s": problem.queue_s.tolist(),
        "bytes_per_s": rates.tolist(),
        "line": None if problem.bottleneck is None else problem.bottleneck.tolist(),
        "site": list(site),
        "place": [problem.shared_at(job, at) for job, at in enumerate(site)],
        "fetches": [
            at in row for at, row in zip(site, problem.fetches or [()] * len(site), strict=True)
        ],
        "bypassed": problem.bypassed or [()] * len(site),
        "priority": [int(value) for value in priority],
        "turn": turn.tolist(),
        "options": list(options),
    }


def executed(cases: Iterable[Mapping[str, Any]], progress: Progress) -> list[float]:
    """Makespans in seconds.

    :raises RuntimeError: where SimGrid stopped.
    """
    root = installed(progress)
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(root / "usr/lib/x86_64-linux-gnu"),
        "PYTHONPATH": str(root / "usr/lib/python3/dist-packages"),
    }
    process = subprocess.run(
        ["/usr/bin/python3", str(_INSIDE)],
        env=env,
        input="".join(json.dumps(problem) + "\n" for problem in cases),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = [json.loads(line) for line in process.stdout.splitlines()]
    if None in seconds:
        raise RuntimeError("SimGrid stopped before the workflow's end")
    return seconds
