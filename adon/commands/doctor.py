"""Say what this machine has, what it lacks, and how to get it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. ``needed`` is False where the line goes on without it."""

    what: str
    found: str
    ok: bool
    needed: bool = True
    advice: str = ""


def add(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``adon doctor``."""
    parser = nouns.add_parser("doctor", help=__doc__, description=__doc__)
    parser.set_defaults(run=_run)


def findings() -> Iterator[Finding]:
    """Everything the line needs or can use, in the order it is used."""
    from adon.testbed import box

    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("Python 3.11 or later", version, sys.version_info >= (3, 11))
    for package in ("htcondor", "pegasus-wms.api", "pegasus-wms.worker", "os-ken"):
        try:
            yield Finding(f"Python package {package}", metadata.version(package), True)
        except metadata.PackageNotFoundError:
            yield Finding(
                f"Python package {package}", "not found", False, advice=f"pip install {package}"
            )
    planner = shutil.which("pegasus-plan")
    yield Finding(
        "pegasus-plan", planner or "not on PATH", planner is not None, False,
        "the embedded planner stands in; install Pegasus to use its own",
    )  # fmt: skip
    apt = shutil.which("apt-get")
    yield Finding(
        "apt-get (private copies of HTCondor and tools)", apt or "not found", apt is not None,
        advice="use Debian 12, or put HTCondor, bwa, samtools and bcftools on PATH",
    )  # fmt: skip
    reason = box.can_box()
    yield Finding(
        "real network in namespaces", reason or "possible", reason is None, False,
        "run as root; until then the network is simulated",
    )  # fmt: skip
    free = shutil.disk_usage(os.environ.get("HOME", "/")).free
    yield Finding(
        "2 GB of disk below HOME", f"{free / 1e9:.0f} GB free", free > 2e9, advice="make room"
    )


def _run(_args: argparse.Namespace) -> int:
    healthy = True
    for f in findings():
        mark = "ok     " if f.ok else "MISSING" if f.needed else "without"
        advice = f"  ({f.advice})" if not f.ok and f.advice else ""
        print(f"{mark}  {f.what}: {f.found}{advice}")
        healthy = healthy and (f.ok or not f.needed)
    return 0 if healthy else 1
