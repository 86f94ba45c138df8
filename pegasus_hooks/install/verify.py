"""Does the planner go by what was installed? It plans a workflow of two jobs, which never runs."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pegasus_hooks.install.home import PegasusHome
from pegasus_hooks.install.parts import InstallPart

LIMIT_S = 180.0
NOT_IN_THE_PLAN = "the planner planned, but "
_SITES = ("adon-a", "adon-b")
_STAMP = re.compile(r"^[\d.: ]+UTC: \[\w[\w ]*\]\s*")
# Java says where; what counts precedes it, last in a chain of causes.
_AT = re.compile(r"\s+at [\w.$]+\(\w+\.java:\d+\)\s*$")
_CAUSE = re.compile(r"^(?:\s*\[\d+\]|Caused by:) (?:[\w.$]+(?:Exception|Error): )?(.*)")
_OF_A_SUCCESS = {"$RETRY": "0", "$MAX_RETRIES": "0", "$RETURN": "0"}  # DAGMan's macros
_RECORD = "- invocation: True\n  mainjob:\n    status:\n      raw: 0\n"  # as kickstart writes it


@dataclass(frozen=True, slots=True)
class Verification:
    """``good``: the planner planned, and the part answered. None: it cannot plan here whatever is
    installed, so nothing was found out. ``said`` is one line for the user."""

    good: bool | None
    said: str


def verify(
    home: PegasusHome,
    parts: Sequence[InstallPart],
    environ: Mapping[str, str],
    own_home: bool,
    catalog_entry: str = "",
    settings: str = "",
) -> Verification:
    """Plan two jobs with ``home`` and see whether the ``parts`` are in the plan.

    ``environ`` is the environment of the planner; without ``own_home`` the user's settings are kept
    out of it, so that those of the installation show. ``catalog_entry`` is an entry (YAML) that the
    transformation catalog gets, ``settings`` lines for the property file. Raises OSError if
    nothing can be written or started.
    """
    with tempfile.TemporaryDirectory(prefix="adon-verify-") as name:
        work = Path(name)
        _write_workflow(work, home, catalog_entry, settings)
        env = dict(environ)
        if not own_home:
            env = {k: v for k, v in env.items() if not k.startswith("_PEGASUS")}
            env.pop("CLASSPATH", None)
            env["HOME"] = str(work)
            # Java asks the system, not the variable.
            user = [f"-Duser.home={work}"]
        else:
            user = []
        env["PEGASUS_METRICS"] = "false"  # nobody's workflow: nothing to tell Pegasus's authors
        code, log = _plan(home, work, [*user, "-vvv"], env, "first")
        verdicts = [_judge(part, code, log, work, env) for part in parts]
        refused = next((verdict for verdict in verdicts if verdict.good is False), None)
        if refused is not None or code == 0:
            return refused or Verification(True, "; ".join(verdict.said for verdict in verdicts))
        other, control = _plan(home, work, [*user, "-Dpegasus.selector.site=Random"], env, "second")
        if other == 0:
            return Verification(False, f"the planner stopped: {_last(log)}")
        lame = f"with or without ADON this planner cannot plan here: {_last(control)}"
        answered = next((verdict for verdict in verdicts if verdict.good), None)
        return (
            Verification(True, f"{answered.said}; {lame}") if answered else Verification(None, lame)
        )


def _judge(
    part: InstallPart, code: int, log: str, work: Path, env: Mapping[str, str]
) -> Verification:
    """What a plan that ended with ``code`` says of one part; None if it says nothing."""
    if part.scripts is not None:
        return (
            _scripts_in(work / "first", *part.scripts, env) if code == 0 else Verification(None, "")
        )
    answered = re.search(rf"^.*({part.answered}.*)$", log, re.MULTILINE)
    failed = next((x for x in log.splitlines() if part.failed and part.failed in x), None)
    if failed is not None:
        return Verification(False, f"ADON did not answer: {_plain(failed)}")
    if answered is not None:
        how = f": {_placed(work) or _plain(answered[1])}" if code == 0 else ""
        return Verification(True, f"ADON answered{how}")
    if code == 0:
        return Verification(False, f"{NOT_IN_THE_PLAN}did not ask ADON{_other_home(env)}")
    return Verification(None, "")


def _scripts_in(submit: Path, pre: str, post: str, env: Mapping[str, str]) -> Verification:
    """Whether every transfer job of the plan has PRE and POST of ours, and whether they run."""
    dag = next(submit.rglob("*.dag"), submit / "none.dag")
    text = dag.read_text(errors="replace") if dag.exists() else ""
    jobs = re.findall(r"^JOB (stage_\S+)", text, re.MULTILINE)
    calls = {}
    for kind, script in (("PRE", pre), ("POST", post)):
        line = rf"^SCRIPT {kind} (\S+) ({re.escape(script)}\s.*)$"
        scripts = dict(re.findall(line, text, re.MULTILINE))
        without = [job for job in jobs if job not in scripts]
        if without or not jobs:
            missing = f"{kind} of {without[0]} is not ADON's" if jobs else "there is no transfer"
            return Verification(False, f"{NOT_IN_THE_PLAN}{missing}")
        calls[kind] = scripts[jobs[0]].replace("$JOB ", f"{jobs[0]} ").split()
    job = (dag.parent / calls["POST"][-1]).with_suffix("")
    job.with_suffix(".in").write_text("[]")  # so that no broker is asked for what never runs
    job.with_suffix(".out").write_text(_RECORD)
    for kind, words in calls.items():
        trouble = _trouble(kind, [_OF_A_SUCCESS.get(w, w) for w in words], dag.parent, env)
        if trouble:
            return Verification(False, f"{words[0]} does not run: {trouble}")
    return Verification(True, f"PRE and POST around its {len(jobs)} transfer jobs")


def _trouble(kind: str, command: list[str], cwd: Path, env: Mapping[str, str]) -> str:
    """What goes wrong with PRE or POST, run as DAGMan would; empty for nothing."""
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.strip().splitlines()
    if done.returncode:
        return lines[-1] if lines else f"exit {done.returncode}"
    # Pegasus's own check may have something to say of this machine; our PRE has not.
    ours = [line for line in lines if kind == "PRE" or line.startswith("adon ")]
    return ours[-1] if ours else ""


def _plan(
    home: PegasusHome, work: Path, options: list[str], env: dict[str, str], submit: str
) -> tuple[int, str]:
    command = [
        str(home.planner), *options,
        "--sites", ",".join(_SITES), "--output-sites", "local",
        "--dir", submit, "--relative-dir", "plan", "workflow.yml",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 1, f"no end within {LIMIT_S:g} s"
    return done.returncode, done.stdout.decode("utf-8", "replace")


def _other_home(env: Mapping[str, str]) -> str:
    """A likely reason: the planner reads ~/.pegasusrc of the home that the system knows."""
    try:
        known = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # not known on this machine
        return ""
    return "" if env.get("HOME") in (None, known) else f" (your home is {known} to it, not HOME)"


def _placed(work: Path) -> str:
    """Where the planner's submit files put the two jobs."""
    placements = []
    for file in sorted(work.glob("first/plan/**/*.sub")):
        name = re.match(r"work_(first|second)\.sub$", file.name)
        site = re.search(r'^\+pegasus_site\s*=\s*"(.*)"', file.read_text(errors="replace"), re.M)
        if name and site:
            placements.append(f"{name[1]} at {site[1]}")
    return ", ".join(placements)


def _plain(line: str) -> str:
    return _AT.sub("", _STAMP.sub("", line)).strip()


def _last(log: str) -> str:
    """What it said last, without Java's places."""
    lines = [_plain(line) for line in log.splitlines() if _plain(line)]
    causes = [m[1] for line in lines if (m := _CAUSE.match(line))]
    return (causes or lines or ["nothing"])[-1][:300]


def _write_workflow(work: Path, home: PegasusHome, catalog_entry: str, settings: str) -> None:
    """``first`` writes what ``second`` reads, at one of two sites, of which adon-b is faster."""
    sites = []
    for site in ("local", *_SITES):
        directories = "\n".join(
            f"  - {{type: {kind}, path: {_q(work / site / kind)}, sharedFileSystem: true,\n"
            f"     fileServers: [{{url: {_q(f'file://{work / site / kind}')}, operation: all}}]}}"
            for kind in ("sharedScratch", "localStorage")
        )
        rate = "1000000000" if site == _SITES[1] else "1000000"
        sites.append(
            f"- name: {site}\n  arch: x86_64\n  os.type: linux\n  directories:\n{directories}\n"
            "  profiles:\n"
            f"    env: {{PEGASUS_HOME: {_q(home.root)}}}\n"
            f"    pegasus: {{style: condor, auxillary.local: 'true', adon.workers: '1', "
            f"adon.rate: '{rate}'}}"
        )
    runs = "\n".join(
        f"  - {{name: {site}, pfn: /bin/true, type: installed}}" for site in ("local", *_SITES)
    )
    (work / "sites.yml").write_text("pegasus: '5.0'\nsites:\n" + "\n".join(sites) + "\n")
    (work / "transformations.yml").write_text(
        f"pegasus: '5.0'\ntransformations:\n{catalog_entry}"
        f"- namespace: adon\n  name: work\n  version: '1.0'\n  sites:\n{runs}\n"
    )
    (work / "input").write_text("x")
    (work / "replicas.yml").write_text(
        "pegasus: '5.0'\nreplicas:\n- lfn: input\n  pfns:\n"
        f"  - {{site: local, pfn: {_q(f'file://{work}/input')}}}\n  metadata: {{size: 1}}\n"
    )
    (work / "pegasus.properties").write_text(
        "pegasus.data.configuration = sharedfs\npegasus.metrics.app = none\n"
        f"pegasus.mode = development\n{settings}"
    )
    (work / "workflow.yml").write_text(
        "pegasus: '5.0'\nname: adon-verify\njobs:\n"
        "- {type: job, namespace: adon, name: work, version: '1.0', id: first, arguments: [],\n"
        "   uses: [{lfn: input, type: input, size: 1},\n"
        "          {lfn: middle, type: output, stageOut: false, registerReplica: false}]}\n"
        "- {type: job, namespace: adon, name: work, version: '1.0', id: second, arguments: [],\n"
        "   uses: [{lfn: middle, type: input},\n"
        "          {lfn: result, type: output, stageOut: true, registerReplica: false}]}\n"
        "jobDependencies:\n- {id: first, children: [second]}\n"
    )


def _q(value: object) -> str:
    return "'" + os.fspath(str(value)).replace("'", "''") + "'"
