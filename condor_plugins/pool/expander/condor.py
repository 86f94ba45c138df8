"""What the expander asks HTCondor and has it do: by its bindings, and by its tools where those can
not (a machine that holds no key of the pool is drained by ``condor_drain`` only)."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import classad2
import htcondor2

from condor_plugins.collector import answered_by
from condor_plugins.pool import dags
from condor_plugins.pool.cloud.workerconfig import WORKER_ATTRIBUTE
from condor_plugins.pool.queue import (
    FLAVOUR,
    POOL,
    SCHEDD,
    SCHEDULER,
    VANILLA,
    host_and_port,
)
from network_provisioner.base.errors import AdonError, MissingError

JOB_ATTRIBUTES = tuple(
    dict.fromkeys(
        (
            *dags.JOB_ATTRIBUTES, "ProcId", "RemoteHost", "Requirements", "RequestCpus",
            "RequestMemory", "RequestDisk", "ImageSize", "MemoryUsage", "AutoClusterId",
            "LastMatchTime", "LastRejMatchTime", "LastRejMatchReason", "pegasus_wf_uuid",
            "PublicClaimId", "ExitCode", "HoldReasonCode", "LastRemoteHost", "LastPublicClaimId",
            "ServerTime",
        )
    )
)  # fmt: skip
_WANTED = f"JobUniverse == {VANILLA} || JobUniverse == {SCHEDULER}"
_TOOL_S, _ANSWER_S = 30.0, 3.0


class Condor:
    """The pool of ``CONDOR_CONFIG``. Every method raises AdonError.

    :param collector: ``host:port``, "" for the configured one.
    """

    def __init__(self, collector: str = "") -> None:
        self.collector = collector
        self._schedds: dict[str, classad2.ClassAd] = {}

    def slots(self) -> list[classad2.ClassAd]:
        """Ads of all slots that are not parts of other slots and run jobs, machines that are
        ``Offline`` among them."""
        with answered_by(self._named):
            where = 'SlotType =!= "Dynamic" && IsDataSlot =!= true'
            return list(self._open().query(htcondor2.AdType.Slot, where))

    def jobs(self) -> list[classad2.ClassAd]:
        """Ads of all jobs that need a slot, and of DAGMans, with the name of their schedd."""
        with answered_by(self._named):
            schedds = self._open().locateAll(htcondor2.DaemonType.Schedd)
            self._schedds = {str(ad["Name"]): ad for ad in schedds}
        jobs = []
        for name, where in self._schedds.items():
            with answered_by(f"schedd {name}"):
                ads = htcondor2.Schedd(where).query(_WANTED, list(JOB_ATTRIBUTES))
            for ad in ads:
                ad[SCHEDD] = name
            jobs += ads
        return jobs

    def whole(self, job: Mapping[str, object]) -> classad2.ClassAd | None:
        """The whole ad of a job of :meth:`jobs`, None if it is gone."""
        name = str(job[SCHEDD])
        constraint = f"ClusterId == {job['ClusterId']} && ProcId == {job['ProcId']}"
        with answered_by(f"schedd {name}"):
            return next(iter(htcondor2.Schedd(self._schedds[name]).query(constraint)), None)

    def advertise(self, offline: Iterable[classad2.ClassAd]) -> None:
        """Make the collector know machines that could be started."""
        with answered_by(self._named):
            self._open().advertise(list(offline), "UPDATE_STARTD_AD")

    def forget(self, worker: str) -> None:
        """No more jobs to a machine that has died."""
        self._invalidate(f"{WORKER_ATTRIBUTE} == {classad2.quote(worker)}")

    def forget_flavours(self, pool: str) -> None:
        """Take back what :meth:`advertise` told of this pool's machines; others may share the
        collector."""
        self._invalidate(f"{POOL} == {classad2.quote(pool)} && {FLAVOUR} isnt undefined && Offline")

    def vacate(self, jobs: Iterable[Mapping[str, object]]) -> None:
        """Have jobs begin anew elsewhere, whose machine has died. Their shadows try to reach it for
        a minute, and then wait until the job's lease ends (``JobLeaseDuration``)."""
        by_schedd: dict[str, list[str]] = {}
        for job in jobs:
            by_schedd.setdefault(str(job[SCHEDD]), []).append(f"{job['ClusterId']}.{job['ProcId']}")
        for name, ids in by_schedd.items():
            with answered_by(f"schedd {name}"):
                htcondor2.Schedd(self._schedds[name]).act(htcondor2.JobAction.VacateFast, ids)

    def drain(self, slot: str, why: str) -> None:
        """No new jobs for a machine; when its last has ended, its startd shuts down."""
        try:
            self._tool("condor_drain", "-graceful", "-exit-on-completion", "-reason", why, slot)
        except AdonError as error:
            if "already in progress" not in str(error):
                raise

    def keep(self, slot: str) -> None:
        """Take a machine back from draining."""
        self._tool("condor_drain", "-cancel", slot)

    @property
    def _named(self) -> str:
        return f"collector {self.collector or htcondor2.param.get('COLLECTOR_HOST', '')}".strip()

    def _invalidate(self, requirements: str) -> None:
        wanted = {"MyType": "Query", "TargetType": "Machine"}
        ad = classad2.ClassAd({**wanted, "Requirements": classad2.ExprTree(requirements)})
        with answered_by(self._named):
            self._open().advertise([ad], "INVALIDATE_STARTD_ADS")

    def _open(self) -> htcondor2.Collector:
        return htcondor2.Collector(self.collector) if self.collector else htcondor2.Collector()

    def _tool(self, *words: str) -> None:
        pool = ["-pool", self.collector] if self.collector else []
        run([words[0], *pool, *words[1:]])


def answers(daemon: str) -> bool:
    """Whether somebody listens at an address as HTCondor writes it (``192.0.2.7:9618?addrs=…``),
    or may: who is behind a broker of connections (CCB) is not reached from here."""
    host, port = host_and_port(daemon)
    if "CCBID=" in daemon or not port.isdecimal():
        return bool(daemon)
    try:
        with socket.create_connection((host, int(port)), _ANSWER_S):
            return True
    except OSError:
        return False


def run(words: Sequence[str]) -> str:
    """Run a program of HTCondor's; what it writes. Raises AdonError, MissingError if there is
    none."""
    tool = shutil.which(words[0]) or str(Path(str(htcondor2.param.get("BIN", ""))) / words[0])
    try:
        return subprocess.run(
            [tool, *words[1:]], capture_output=True, text=True, errors="replace",
            timeout=_TOOL_S, check=True,
        ).stdout  # fmt: skip
    except subprocess.CalledProcessError as error:
        lines = (error.stderr.strip() or error.stdout.strip()).splitlines()
        raise AdonError(f"{words[0]}: {lines[-1] if lines else error}") from None
    except subprocess.TimeoutExpired:
        raise AdonError(f"{words[0]}: no answer within {_TOOL_S:g} s") from None
    except OSError as error:
        raise MissingError(f"{tool}: {error.strerror}, expected HTCondor's tools") from None
