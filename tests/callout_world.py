"""A planner of our own that calls the site-selector callout as Pegasus does.

What is imitated is what was seen of the real one: the child's environment is replaced and has no
PATH, its one argument is a file of ``key=value`` lines without sizes, its working directory is the
planner's, and its parent's command line is that of the Java process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner_world import ROOT, make_case

CALLOUT = ROOT / "pegasus_hooks" / "callout.py"
CLASS = "edu.isi.pegasus.planner.client.CPlanner"
SERVERS = {
    "mu": ["gsiftp://dtn1.mu.example.edu:2811"],
    "tacc": [
        "scp://wf@data.tacc.example.edu",
        "https://dtn.tacc.example.edu",
        "gsiftp://gridftp.tacc.example.edu:2811",
    ],
}
# Runs as the planner: JSON on standard input, JSON on standard output.
_PLANNER = """
import json, subprocess, sys
asked = json.load(sys.stdin)
for file in asked["files"]:
    done = subprocess.run(
        [*asked["command"], file], env=asked["env"], capture_output=True, timeout=600
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    print(json.dumps({"code": done.returncode, "out": out, "err": err}))
"""


@dataclass(frozen=True)
class Answered:
    """What came of a call."""

    code: int
    out: str
    err: str

    @property
    def site(self) -> str:
        """The site, after checking that the answer is one as Pegasus wants it."""
        assert self.code == 0
        assert self.out.startswith("SOLUTION:"), self.out
        assert self.out.endswith("\n"), self.out
        assert self.out.count("\n") == 1, self.out
        return self.out.removeprefix("SOLUTION:").removesuffix("\n")


def callout_text(
    job: str, transformation: str, level: int = 0, workflow: str = "mini",
    servers: Mapping[str, Sequence[str]] | None = None, inputs: Sequence[str] = (),
) -> str:  # fmt: skip
    """The file that the planner hands over."""
    urls_by_site = SERVERS if servers is None else servers
    lines = ["version=2.0", f"transformation={transformation}", "derivation=null"]
    lines += [f"job.level={level}", f"job.id={job}"]
    lines += [f"resource.id={site} {url}" for site, urls in urls_by_site.items() for url in urls]
    lines += [f"input.lfn={lfn}" for lfn in inputs]
    lines += [f"wf.name={workflow}", "wf.index=0", "wf.manager=dagman"]
    return "\n".join([*lines, "vo.name=NONE", "vo.group=NONE", ""])


@dataclass
class Planning:
    """A workflow below ``root`` (split, shout, count, join) and a planner for it."""

    root: Path

    def __post_init__(self) -> None:
        self.case = make_case(self.root / "wf")
        self.home = self.root / "home"
        self.cache = self.root / "cache"
        self.home.mkdir()
        self.cache.mkdir()
        self.jobs = {
            "ID1": ("t::split:1.0", 0), "ID2": ("t::shout:1.0", 1),
            "ID3": ("t::count:1.0", 1), "ID4": ("t::join:1.0", 2),
        }  # fmt: skip

    def files(self, servers: Mapping[str, Sequence[str]] | None = None) -> list[str]:
        """The callout files of the four jobs, in call order."""
        out = []
        for number, (job, (transformation, level)) in enumerate(self.jobs.items()):
            path = self.root / f"pegasus{number}.tmp"
            path.write_text(callout_text(job, transformation, level, servers=servers))
            out.append(str(path))
        return out

    def run(self, *arguments: str, files: Sequence[str] | None = None) -> list[Answered]:
        """One planner process that asks for every file, in the folder of the workflow."""
        request = {
            "files": files or self.files(),
            "command": [sys.executable, "-I", "-S", str(CALLOUT)],
            "env": {
                "CLASSPATH": "/x/pegasus.jar", "JAVA_HOME": "/usr/lib/jvm/x", "USER": "wf",
                "LOGNAME": "wf", "HOME": str(self.home), "TMP": str(self.cache), "TZ": "UTC",
                "ADON_CALLOUT_TIMEOUT": "300",  # longer than any of it takes on a busy machine
            },
        }  # fmt: skip
        process = subprocess.run(
            [sys.executable, "-I", "-c", _PLANNER, CLASS, *arguments],
            input=json.dumps(request), cwd=self.case.root, capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip
        assert process.returncode == 0, process.stderr
        return [Answered(**json.loads(line)) for line in process.stdout.splitlines()]

    def kept(self) -> list[Path]:
        """Files that callouts left behind."""
        return sorted(self.cache.glob("adon-callout-*"))
