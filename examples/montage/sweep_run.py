"""One run of the sweep: a mosaic on a slice with links of a rate and disks of a speed.

Every tile goes to the head node, whose disk is the one that counts, as where HTCondor carries all
files from and to it. Links and disks are all that differs: data and plan are the same each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Self

from adon.machine import box
from examples.compare.record import Cores
from examples.demo import running, steps
from examples.demo.line import clear
from examples.demo.supervise import BrokerProcess
from examples.montage.scenario import SCENARIO
from examples.montage.sky import Recipe
from examples.montage.workflow import write
from examples.testbed.disks import Disk
from examples.testbed.layout import HUB, Layout, Link, Site
from examples.testbed.testbed import Programs, Testbed
from monitors.archive.archive import Archive
from monitors.measurements.agent.host_reports import DiskReporter, reporting
from monitors.measurements.agent.settings import AgentSettings
from monitors.measurements.probes.disks import DiskReader, io_wait_histogram
from network_provisioner.base.clock import since_boot
from network_provisioner.base.errors import AdonError
from network_provisioner.base.model import Transit
from pegasus_hooks.planner.model import Options
from pegasus_hooks.planner.plan import plan
from site_selector.catalogs.sources import Sources
from site_selector.inputs import load_inputs
from site_selector.wholefile import write_whole

RACK = "fiu"
FOLLOWED = "followed"
PLACEMENTS = {"default": (".",), "isolated": (HUB, RACK), FOLLOWED: (".",)}
"""The folders with a disk each: head and workers share one, or have one each. The last is as the
first, but every transfer has a transit, whose rates follow the disk."""
_ACCOUNTING = Path("/proc/sys/kernel/task_delayacct")
_RECIPE = Recipe(bands=1, tiles=2)
_DELAY_S = 0.02
_DISK_BYTES = 1 << 30
_AGENT = f"{HUB}/head"
_LEAST_BPS = 0.5e6  # of a process: less is of log files


@dataclass(frozen=True, slots=True)
class SweepRun:
    """What it is made with, and what came of it: ``seconds`` from submission to the end, the mean
    load of all ``cores``, ``io_wait``, the histogram of the head's processes, the share of the
    bandwidth of its transits that they had ``given_back``, and of each second of its ``disk`` what
    was read and written, b/s."""

    placement: str
    rate_bps: float
    disk_bps: float
    number: int
    state: str = ""
    seconds: float = 0.0
    cores: float = 0.0
    io_wait: Sequence[float] = ()
    given_back: float = 0.0
    disk: Sequence[Sequence[float]] = ()

    @classmethod
    def load(cls, file: Path) -> Self | None:
        """The run in ``file``, None if there is none."""
        return cls(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def make(run: SweepRun, state: Path, programs: Programs, file: Path) -> None:
    """Make the disks, and have it run on them in a box; it writes ``file`` where it came to its
    end. Raises AdonError."""
    about = {"run": asdict(run), "programs": asdict(programs), "state": state, "file": file}
    words = [sys.executable, "-m", "examples.montage.sweep_run", json.dumps(about, default=str)]
    with ExitStack() as stack:
        # The kernel counts what a process waits for disks where this is on when it begins.
        before = _ACCOUNTING.read_text(encoding="ascii")
        stack.callback(_ACCOUNTING.write_text, before, encoding="ascii")
        _ACCOUNTING.write_text("1", encoding="ascii")
        for folder in PLACEMENTS[run.placement]:
            path = (state / "testbed/sites" / folder).resolve()
            stack.enter_context(Disk(path, _DISK_BYTES, run.disk_bps))
        subprocess.run([*box.command(), *words], cwd=steps.ROOT, check=False)


def main(about: str) -> int:
    """Run it, within the box. Returns 0 for a run that came to its end."""
    given = json.loads(about)
    programs = Programs(**{name: Path(folder) for name, folder in given["programs"].items()})
    try:
        done = _run(SweepRun(**given["run"]), Path(given["state"]) / "testbed", programs)
        text = json.dumps(asdict(done)) + "\n"
        write_whole(given["file"], lambda stream: stream.write(text), "a run")
    except (AdonError, OSError, KeyboardInterrupt) as error:
        print(f"adon: {error}", file=sys.stderr)
        return 2
    return 0


def _run(run: SweepRun, run_dir: Path, programs: Programs) -> SweepRun:
    """Bring the testbed up and run the workflow. Raises AdonError, OSError."""
    clear(run_dir)
    layout = Layout(
        sites=(Site(HUB, 1, "s1", workers=1), Site(RACK, 2, "s2", workers=4)),
        links=(Link("l3", "s1", "s2", run.rate_bps, _DELAY_S, routed=True),),
    )
    say, made = steps.clock(time.monotonic()), run_dir / "workflow"
    kept, followed = run_dir / "archive.sqlite", run.placement == FOLLOWED
    with ExitStack() as stack:
        testbed = stack.enter_context(Testbed(layout, run_dir, programs, say))
        archive = stack.enter_context(Archive(kept))
        scenario = replace(SCENARIO, layout=layout)
        config, url = steps.write_config(scenario, testbed.real, kept, run_dir, [_AGENT])
        hooks = steps.write_hooks(scenario.template, url, kept, run_dir) if followed else None
        broker = stack.enter_context(BrokerProcess(config, url, run_dir / "broker.log"))
        say(write(_RECIPE, made, testbed.write(), (RACK,), keep_all=True))
        broker.ready()
        inputs = load_inputs(made / "workflow.yml")
        planned = plan(
            inputs, Sources(made / "workflow.yml"), dict.fromkeys(inputs.workflow.jobs, RACK),
            run_dir / "submit", HUB, hooks,
            Options(user=testbed.pool.user.name, check="", cleanup=False),
        )  # fmt: skip
        os.sync()  # the input is on the disk before the clock starts
        if followed:
            agent = AgentSettings(_AGENT, url, "", run_dir)
            reporter = DiskReporter(DiskReader(since_boot, _at_head))
            stack.enter_context(reporting(agent, "disks", reporter))
        seen = stack.enter_context(_Seen())
        end = running.follow(planned, testbed.pool, archive, say, lambda _stuck: None)
        transits = broker.client.list()
    return replace(
        run, state=end.state, seconds=end.ended - end.started,
        cores=fmean(load for _, load in seen.loads), io_wait=io_wait_histogram(seen.waits),
        given_back=_given_back(transits, run.rate_bps), disk=seen.disk,
    )  # fmt: skip


def _given_back(transits: Sequence[Transit], rate_bps: float) -> float:
    """The share of what they could have had of the link, each as long as its transfer took."""
    had = [
        min(transit.request.max_bps + transit.given_back_bps, rate_bps) * transit.usage.seconds
        for transit in transits
    ]
    used = [min(transit.request.max_bps, rate_bps) * transit.usage.seconds for transit in transits]
    return 1 - sum(used) / sum(had) if sum(had) else 0.0


def _at_head(pid: int) -> bool:
    """Whether a process is the head's: its network is the box's, as ours is."""
    return Path(f"/proc/{pid}/ns/net").readlink() == _own_network()


@cache
def _own_network() -> Path:
    return Path("/proc/self/ns/net").readlink()


class _Seen(Cores):
    """Each second also what the head's processes wait for disks, and move: ``waits``, ``disk``."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.disk: list[tuple[float, float]] = []
        self._reader = DiskReader(belongs=_at_head)

    def note(self) -> None:
        super().note()
        second = self._reader.read()
        processes = second.processes if second else []
        self.disk.append((sum(p.read_bps for p in processes), sum(p.write_bps for p in processes)))
        for process in processes:
            moved = process.read_bps + process.write_bps > _LEAST_BPS
            if process.io_wait is not None and (moved or process.io_wait):
                self.waits.append(process.io_wait)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
