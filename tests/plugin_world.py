"""Workflows to be planned with the plug-in: by a small planner of our own on a real JVM, and by a
real ``pegasus-plan`` where one is on PATH. The same scene is given to either."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from adon.machine.packages import ensure
from adon.planning.jar import debian_compiler, planner_jar
from pegasus_hooks.plugin import (
    COMMAND_PROPERTY,
    SELECTOR_PROPERTY,
    SITE_SELECTOR_CLASS,
    TIMEOUT_PROPERTY,
    command_text,
)
from pegasus_hooks.plugin.build import installed_compiler

FAKE = Path(__file__).parent / "component" / "planner_java"
OURS = (sys.executable, "-I", "-m", "adon.planner_request")
CONSOLE, WARNING, INFO = 2, 3, 4
_SELECTION = re.compile(r"event\.pegasus\.siteselection .*\(([\d.]+) seconds\)")
_LOG = re.compile(r"(?m)^[^\[\n]*?(?:\[(WARNING|INFO)\])?\s+(ADON: .*)")


@dataclass
class SceneJob:
    """A job; ``reads`` and ``writes`` map names to bytes, None if none are declared."""

    id: str
    program: str = "run"
    reads: Mapping[str, int | None] = field(default_factory=dict)
    writes: Mapping[str, int | None] = field(default_factory=dict)
    after: Sequence[str] = ()
    profiles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    kind: str = "Job"


@dataclass
class Scene:
    """A workflow with its catalogs. ``programs``: by name, run time by site ("" for unknown)."""

    jobs: list[SceneJob]
    name: str = "scene"
    programs: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: {"run": {"mu": "60", "tacc": "60"}}
    )
    sites: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: {"local": {}, "mu": {}, "tacc": {}}
    )
    execution: Sequence[str] = ("tacc", "mu")
    replicas: Mapping[str, tuple[str, str, int | None]] = field(default_factory=dict)
    cluster: str | None = None
    output: str | None = "local"
    properties: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] | None = OURS
    timeout_s: float | None = None
    options: Sequence[str] = ("-v",)
    kept: Sequence[str] = ()  # files that stay where they are written
    bypassed: Sequence[str] = ()  # inputs that bypass the staging site
    replica_files: Sequence[tuple[str, str]] = ()  # "replicas", "inherited" or "cache", and a path

    def all_properties(self) -> dict[str, str]:
        properties = {
            SELECTOR_PROPERTY: SITE_SELECTOR_CLASS,
            "pegasus.data.configuration": "sharedfs",
        }
        if self.command is not None:
            properties[COMMAND_PROPERTY] = command_text(self.command)
        if self.timeout_s is not None:
            properties[TIMEOUT_PROPERTY] = str(self.timeout_s)
        return properties | dict(self.properties)


class Refused(AssertionError):
    """The planner gave up; the message is all it said."""


@dataclass
class Outcome:
    """Where jobs went, ADON's log lines with their levels, seconds of site selection, and of a
    whole ``pegasus-plan``.

    ``asked``: how often the planner of our own was asked for a program's sites."""

    sites: dict[str, str]
    log: list[tuple[int, str]]
    seconds: float = 0.0
    asked: int = 0
    whole_s: float = 0.0
    priorities: dict[str, str] = field(default_factory=dict)

    @property
    def warnings(self) -> list[str]:
        return [line for level, line in self.log if level == WARNING]

    @property
    def said(self) -> list[str]:
        """What everybody sees."""
        return [line for level, line in self.log if level == CONSOLE]

    @property
    def infos(self) -> list[str]:
        return [line for level, line in self.log if level == INFO]


def tool(name: str) -> str:
    """``java`` or ``javac`` of the machine, else of the JDK that the jar is built with."""
    compiler = installed_compiler() or debian_compiler(print)
    beside = compiler.with_name(name)
    return str(beside if beside.exists() else shutil.which(name) or name)


@functools.cache
def _fake_classes() -> tempfile.TemporaryDirectory[str]:
    made = tempfile.TemporaryDirectory(prefix="adon-fake-planner-")
    sources = [str(path) for path in sorted(FAKE.rglob("*.java"))]
    subprocess.run([tool("javac"), "-nowarn", "-d", made.name, *sources], check=True)
    return made


def facts(scene: Scene) -> Iterator[Sequence[str]]:
    """The scene as the planner of our own reads it."""
    yield "name", scene.name
    yield from (("property", key, value) for key, value in scene.all_properties().items())
    yield from (("execution", site) for site in scene.execution)
    yield from (("cluster", scene.cluster),) if scene.cluster else ()
    yield from (("output", scene.output),) if scene.output else ()
    yield from scene.replica_files
    for site, profiles in scene.sites.items():
        yield "site", site
        yield "scratch", site, f"file:///{site}/sharedScratch"
        yield from (("siteprofile", site, key, value) for key, value in profiles.items())
    for program, runtimes in scene.programs.items():
        for site, runtime in runtimes.items():
            yield "program", "t", program, "1.0", site, runtime
    writer = {lfn: job.id for job in scene.jobs for lfn in job.writes}
    for job in scene.jobs:
        yield from _job_facts(scene, job)
    for job in scene.jobs:
        for parent in dict.fromkeys([*job.after, *(writer[f] for f in job.reads if f in writer)]):
            yield "edge", parent, job.id
    for lfn, (site, url, size) in scene.replicas.items():
        yield "replica", lfn, site, url, "" if size is None else str(size)


def _job_facts(scene: Scene, job: SceneJob) -> Iterator[Sequence[str]]:
    yield "job", job.id, job.kind, "t", job.program, "1.0"
    for space, keys in job.profiles.items():
        yield from (("profile", job.id, space, key, value) for key, value in keys.items())
    if job.kind in ("DAXJob", "DAGJob"):
        yield "profile", job.id, "selector", "execution.site", "local"
    for link, uses in (("input", job.reads), ("output", job.writes)):
        for lfn, size in uses.items():
            stays = "stays" if lfn in scene.kept else ""
            way = "bypass" if lfn in scene.bypassed else ""
            yield "use", job.id, lfn, link, "" if size is None else str(size), stays, "data", way


def fake_plan(
    scene: Scene, timeout_s: float = 600.0, extra: Sequence[Sequence[str]] = ()
) -> Outcome:
    """Planned by the planner of our own; raises Refused where it ends with an error."""
    text = "".join("\t".join(fact) + "\n" for fact in [*facts(scene), *extra])
    path = f"{_fake_classes().name}{os.pathsep}{planner_jar(progress=print)}"
    done = subprocess.run(
        [tool("java"), "-cp", path, "FakePlanner", SITE_SELECTOR_CLASS],
        input=text.encode("utf-8", "surrogatepass"),
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise Refused((done.stdout + done.stderr).decode("utf-8", "replace"))
    outcome = Outcome({}, [])
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        word, *rest = line.split("\t")
        if word == "site":
            outcome.sites[rest[0]] = rest[1]
        elif word == "priority":
            outcome.priorities[rest[0]] = rest[1]
        elif word == "log":
            outcome.log.append((int(rest[0]), rest[1]))
        elif word == "seconds":
            outcome.seconds = float(rest[0])
        elif word == "asked":
            outcome.asked = int(rest[0])
    return outcome


def write_scene(scene: Scene, root: Path) -> list[str]:
    """The scene as files for ``pegasus-plan``; returns the command."""
    root.mkdir(parents=True, exist_ok=True)
    catalogs = {
        "site": {"sites": [_site(root, name, p) for name, p in scene.sites.items()]},
        "transformation": {
            "transformations": [_program(name, r) for name, r in scene.programs.items()]
        },
        "replica": {
            "replicas": [
                {"lfn": lfn, "pfns": [{"site": site, "pfn": url}]}
                | ({} if size is None else {"metadata": {"size": size}})
                for lfn, (site, url, size) in scene.replicas.items()
            ]
        },
    }
    lines = [f"{key}={_escaped(value)}" for key, value in scene.all_properties().items()]
    for kind, content in catalogs.items():
        path = root / f"{kind}s.yml"
        document = {"pegasus": "5.0.4", **content}
        path.write_text(yaml.safe_dump(document, allow_unicode=True, sort_keys=False))
        lines += [f"pegasus.catalog.{kind}=YAML", f"pegasus.catalog.{kind}.file={path}"]
    (root / "pegasus.properties").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (root / "workflow.yml").write_text(
        yaml.safe_dump(
            {
                "pegasus": "5.0.4",
                "name": scene.name,
                "jobs": [_job(scene, job) for job in scene.jobs],
                "jobDependencies": [
                    {"id": parent, "children": [job.id]}
                    for job in scene.jobs
                    for parent in job.after
                ],
            },
            allow_unicode=True,
            sort_keys=False,
        ),
        encoding="utf-8",
    )
    command = ["pegasus-plan", *scene.options, "--conf", str(root / "pegasus.properties")]
    command += ["--sites", ",".join(scene.execution), "--dir", str(root / "submit")]
    command += ["--output-sites", scene.output] if scene.output else []
    command += ["--cluster", scene.cluster] if scene.cluster else []
    return [*command, "--cleanup", "none", str(root / "workflow.yml")]


def real_plan(scene: Scene, root: Path, timeout_s: float = 600.0) -> Outcome:
    """Planned by ``pegasus-plan``; raises Refused where it ends with an error."""
    command = write_scene(scene, root)
    condor = ensure("condor", progress=print) / "wrap"  # the planner looks for its programs
    env = {
        **os.environ,
        "CLASSPATH": str(planner_jar(progress=print)),
        "PATH": f"{condor}{os.pathsep}{os.environ['PATH']}",
        "CONDOR_CONFIG": "ONLY_ENV",
    }
    began = time.monotonic()
    process = subprocess.run(
        command, capture_output=True, text=True, env=env, timeout=timeout_s, check=False, cwd=root
    )
    took = time.monotonic() - began
    output = process.stdout + process.stderr
    if process.returncode != 0:
        raise Refused(output)
    levels = {"": CONSOLE, "WARNING": WARNING, "INFO": INFO}
    outcome = Outcome({}, [(levels[level], line.strip()) for level, line in _LOG.findall(output)])
    timed = _SELECTION.search(output)
    outcome.seconds = float(timed[1]) if timed else 0.0
    outcome.whole_s = took
    for path in (root / "submit").rglob("*.sub"):
        keys = dict(
            (part.strip() for part in line.split("=", 1))
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.startswith(("+pegasus_", "priority"))
        )
        job = keys.get("+pegasus_wf_dax_job_id", '"null"').strip('"')
        if job != "null":
            outcome.sites[job] = keys["+pegasus_site"].strip('"')
            outcome.priorities[job] = keys.get("priority", "")  # a sub-workflow may have none
    return outcome


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def _site(root: Path, name: str, profiles: Mapping[str, str]) -> dict[str, Any]:
    def directory(kind: str) -> dict[str, Any]:
        path = f"{root}/{name}/{kind}"
        server = {"url": f"file://{path}", "operation": "all"}
        return {"type": kind, "path": path, "sharedFileSystem": True, "fileServers": [server]}

    own = {"style": "condor", "auxillary.local": "true", **profiles}
    return {
        "name": name,
        "arch": "x86_64",
        "os.type": "linux",
        "directories": [directory("sharedScratch"), directory("localStorage")],
        "profiles": {
            "condor": {"universe": "vanilla"},
            "pegasus": own,
            "env": {"PEGASUS_HOME": str(Path(shutil.which("pegasus-plan") or "/x/y").parents[1])},
        },
    }


def _program(name: str, runtimes: Mapping[str, str]) -> dict[str, Any]:
    sites = [
        {"name": site, "pfn": f"/bin/{name}", "type": "installed"}
        | ({"profiles": {"pegasus": {"runtime": runtime}}} if runtime else {})
        for site, runtime in runtimes.items()
    ]
    return {"namespace": "t", "name": name, "version": "1.0", "sites": sites}


def _job(scene: Scene, job: SceneJob) -> dict[str, Any]:
    uses = []
    for link, files in (("input", job.reads), ("output", job.writes)):
        for lfn, size in files.items():
            use: dict[str, Any] = {"lfn": lfn, "type": link}
            if link == "output":
                use |= {"stageOut": lfn not in scene.kept, "registerReplica": False}
            if lfn in scene.bypassed:
                use["bypass"] = True
            uses.append(use if size is None else use | {"size": size})
    head: dict[str, Any] = {"type": "job", "namespace": "t", "version": "1.0", "name": job.program}
    if job.kind == "DAXJob":
        head = {"type": "pegasusWorkflow", "file": next(iter(job.reads))}
    body = {"id": job.id, "arguments": [], "uses": uses}
    # Copies: Pegasus reads no aliases, which YAML makes of what is shared.
    own = {"profiles": {space: dict(keys) for space, keys in job.profiles.items()}}
    return head | body | (own if job.profiles else {})
