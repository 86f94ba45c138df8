"""P2: what the planner plug-in adds to planning, from its being asked to the last job placed.

With a real ``pegasus-plan`` on PATH its own record of the time for site selection is taken, and
its Random is the peer. Else a small planner of our own asks on a real JVM, and the peer is the
plug-in's built-in rule, which asks nobody.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tests.bench import Figure, Tell, bench

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from plugin_world import Outcome, Scene, SceneJob, fake_plan, real_plan

COUNTS = (1_000, 10_000)
SITES = 10
WIDTH = 100
MB = 10**6
LIMIT_S = 300.0  # the bench measures the whole answer, however busy the machine is


@bench("P2")
def plugin_time(tell: Tell) -> Iterable[Figure]:
    """Per job at 1,000 and at 10,000 jobs, ten sites."""
    real = shutil.which("pegasus-plan") is not None
    where = "pegasus-plan" if real else "our own planner"
    for count in COUNTS:
        scene = replace(workflow(count), timeout_s=LIMIT_S)
        if real:
            other = {"pegasus.selector.site": "Random"}
            peer_scene, peer = replace(scene, properties=other), "Pegasus's Random"
        else:
            peer_scene, peer = replace(scene, command=None), "built-in rule, nobody asked"
        tell(f"{count:,} jobs: {peer}")
        without = planned(peer_scene, real)
        tell(f"{count:,} jobs: ADON")
        ours = planned(scene, real)
        if ours.warnings or len(set(ours.sites.values())) < 2:
            raise RuntimeError(f"ADON did not map: {ours.log}")
        yield Figure(
            f"site selection by the plug-in in {where}, {count:,} jobs x {SITES} sites",
            1e3 * ours.seconds / count,
            "ms per job",
            better="lower",
            peers={peer: 1e3 * without.seconds / count},
        )
        if real:
            yield Figure(
                f"of a whole pegasus-plan, {count:,} jobs x {SITES} sites, site selection is",
                100 * ours.seconds / ours.whole_s,
                "%",
                better="lower",
                goal=3.0,
                peers={peer: 100 * without.seconds / without.whole_s},
            )


def planned(scene: Scene, real: bool) -> Outcome:
    """The scene, planned by one of both."""
    if not real:
        return fake_plan(scene, timeout_s=900)
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        return real_plan(scene, Path(name), timeout_s=1800)


def workflow(count: int) -> Scene:
    """Samples side by side, six steps each; every last step also reads its neighbour's data."""
    names = [f"site{i}" for i in range(SITES)]
    programs = {
        f"step{k}": {site: str(10 + 3 * k + i) for i, site in enumerate(names)} for k in range(6)
    }
    jobs, replicas = [], {}
    for i in range(count):
        level, column = divmod(i, WIDTH)
        step = level % 6
        reads: dict[str, int | None] = {}
        if step == 0:
            reads[f"raw{i}"] = None
            replicas[f"raw{i}"] = (
                names[i % SITES],
                f"http://{names[i % SITES]}.example/raw{i}",
                MB,
            )
        else:
            reads[f"f{i - WIDTH}"] = None
        if step == 5:
            reads[f"f{(level - 1) * WIDTH + (column + 1) % WIDTH}"] = None
        jobs.append(SceneJob(f"ID{i:07d}", f"step{step}", reads, {f"f{i}": 50 * MB}))
    sites = {site: {"adon.workers": "20"} for site in names}
    return Scene(jobs, "samples", programs, {"local": {}, **sites}, names, replicas)
