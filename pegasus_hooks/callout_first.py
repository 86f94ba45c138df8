"""The first call of a planner: ``adon site map`` maps the workflow that its command line names.

Where that fails, or takes too long, the planner's log says why, and jobs are spread over the sites.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from site_selector.catalogs import properties

LIMIT_S = 30.0  # for the mapping; a planner gives up after 60 s or more
PER_JOB_S = 5.0  # what a planner sleeps after each call, unless the answer is there at once
_ROOT = repr(str(Path(__file__).resolve().parents[1]))
# It ends with the planner's call, by PR_SET_PDEATHSIG; not every system's setpriv can do that.
_ADON = (
    "import ctypes, sys; ctypes.CDLL(None).prctl(1, 9); "
    f"sys.path.insert(0, {_ROOT}); from adon.cli.main import main; sys.exit(main())"
)


def make_table(offered: Sequence[bytes], head: bytes, answers: Callable[[int], bytes]) -> bytes:
    """The answers for the workflow of the planner that started us, after ``head``; they are kept
    in the file that ``answers`` names for its process, and announced on standard error.

    ``offered``: the sites that its jobs may go to.
    """
    sites, problem = {}, ""
    try:
        sites = mapped_sites(offered)
    except subprocess.CalledProcessError as error:
        problem = error.stderr
    except Exception as error:  # whatever it is, it is said once, and the planner gets answers
        problem = f"{type(error).__name__}: {error}"
    lines = [b"\n%s\t%s" % (os.fsencode(job), os.fsencode(site)) for job, site in sites.items()]
    table = head + b"".join(lines) + b"\n"
    with contextlib.suppress(OSError):  # where nothing can be kept, each call maps anew
        keep(table, answers)
    with contextlib.suppress(OSError):
        announce(message(len(sites), problem))
    return table


def message(jobs: int, problem: str) -> str:
    """The one line of a plan: what the callout costs, and why the mapping does not answer."""
    if problem:
        return f"adon: jobs are placed by the built-in rule: {' '.join(problem.split())[-500:]}"
    return (
        f"adon: this planner sleeps about {PER_JOB_S:g} s for every job it asks about "
        f"({jobs} jobs: {PER_JOB_S * jobs:g} s); "
        "the plug-in of 'adon install pegasus' is asked once for all"
    )


def mapped_sites(offered: Sequence[bytes]) -> dict[str, str]:
    """The site of each job of the workflow that the planner was started with."""
    planner = Path(f"/proc/{os.getppid()}")
    arguments = os.fsdecode((planner / "cmdline").read_bytes()).split("\0")[:-1]
    pairs = os.fsdecode((planner / "environ").read_bytes()).split("\0")
    env = {**dict(p.split("=", 1) for p in pairs if "=" in p), **os.environ}
    workflow, options, known = planner_arguments(arguments, env)
    limit = float(env.get("ADON_CALLOUT_TIMEOUT") or LIMIT_S)
    most = float(known.get("pegasus.selector.site.timeout") or 2 * limit)
    names = ",".join(map(os.fsdecode, offered))
    with tempfile.NamedTemporaryFile(suffix=".json") as saved:
        subprocess.run(
            [sys.executable, "-I", "-c", _ADON, "site", "map",
             f"--execution-sites={names}", "--order=pegasus", *options, f"--save={saved.name}",
             "--", workflow],
            env={"PATH": os.defpath, **env}, timeout=min(limit, most / 2),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        )  # fmt: skip
        mapping = json.loads(Path(saved.name).read_bytes())
    return {placement["job"]: placement["site"] for placement in mapping["placements"]}


def planner_arguments(
    words: Sequence[str], env: Mapping[str, str]
) -> tuple[str, list[str], dict[str, str]]:
    """The workflow, ``adon site map``'s options for it, and the planner's properties, from the
    command line of its Java process. Raises ValueError if it is none."""
    at = next((i for i, word in enumerate(words) if word.endswith("CPlanner")), None)
    if at is None:
        raise ValueError(f"the process that asks is {' '.join(words)[:60]!r}, expected a planner")
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    for names in (["--conf"], ["--output-sites", "-o"], ["--dax", "-d"], ["--input-dir", "-I"]):
        parser.add_argument(*names)
    parser.add_argument("-D", action="append", default=[], dest="system")
    arguments, rest = parser.parse_known_args(words[at + 1 :])
    system = [word[2:] for word in words[:at] if word.startswith("-D")] + arguments.system
    known = properties_of(dict(s.split("=", 1) for s in system if "=" in s), arguments.conf, env)
    options = [
        f"--{kind}s={Path.cwd() / known[name]}" for kind in ("site", "replica", "transformation")
        if (name := f"pegasus.catalog.{kind}.file") in known
    ]  # fmt: skip
    options += [f"--output-site={arguments.output_sites}"] if arguments.output_sites else []
    configured = known.get("pegasus.data.configuration")
    options += [f"--data-configuration={configured.lower()}"] if configured else []
    options += [f"--input-dir={arguments.input_dir}"] if arguments.input_dir else []
    options += [f"--config={env['ADON_CONFIG']}"] if env.get("ADON_CONFIG") else []
    workflow = arguments.dax or (rest[-1] if rest and Path(rest[-1]).is_file() else "workflow.yml")
    return workflow, options, known


def properties_of(
    system: Mapping[str, str], conf: str | None, env: Mapping[str, str]
) -> dict[str, str]:
    """The planner's properties from each place that it reads, the later over the earlier."""
    given = {"user.dir": str(Path.cwd()), "user.home": env.get("HOME", ""), **system}
    known: dict[str, str] = {}
    etc = given.get("pegasus.home.sysconfdir", "")
    for file in (f"{etc}/pegasus.properties", f"{given['user.home']}/.pegasusrc",
                 "pegasus.properties", conf or "pegasus.properties"):  # fmt: skip
        with contextlib.suppress(OSError, ValueError):
            text = Path(file).read_text(encoding="utf-8", errors="replace")
            known |= properties.fill(properties.parse(text), {**given, **known})
    for key, value in env.items():
        if key.startswith("_PEGASUS"):
            known[key[1:].lower().replace("__", ".")] = value
    return {**known, **system}


def keep(table: bytes, answers: Callable[[int], bytes]) -> None:
    """Write the answers whole, and remove those of planners that have ended."""
    path = Path(os.fsdecode(answers(os.getppid())))
    prefix = f"adon-callout-{os.getuid()}-"
    for file in path.parent.glob(f"{prefix}*"):
        pid = file.name.removeprefix(prefix).split("-")[0]
        if pid.isdecimal() and answers(int(pid)) != os.fsencode(file):
            file.unlink(missing_ok=True)
    number, part = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(number, "wb") as stream:
        stream.write(table)
    Path(part).rename(path)


def announce(line: str) -> None:
    """One line on standard error, which a planner reads, when it looks every five seconds, only
    while there is no answer: the answer has to wait for that."""
    os.write(2, line.encode("utf-8", "backslashreplace") + b"\n")
    unread, until = 1, time.monotonic() + 2 * PER_JOB_S
    while unread and time.monotonic() < until:
        time.sleep(0.0005)
        unread = int.from_bytes(fcntl.ioctl(2, termios.FIONREAD, b"\0" * 4), sys.byteorder)
