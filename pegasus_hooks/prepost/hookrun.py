"""The two hooks as programs: arguments in, exit code out, nothing that could fail a workflow.

Everything that goes wrong ends as a warning in the journal of the submit directory (or, where that
cannot be written, on standard error, which DAGMan keeps).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from network_provisioner.base.errors import AdonError, BrokerError, InputError
from network_provisioner.client import hookconfig
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import Effects
from network_provisioner.client.patience import Budget
from pegasus_hooks.prepost import have_watched

if TYPE_CHECKING:
    from network_provisioner.client.broker import BrokerClient

_EXEC_FAILED = 127
_MAX_EXIT = 255


@dataclass(frozen=True, slots=True)
class HookArguments:
    """A hook's arguments. ``code`` is the job's own result, 0 for PRE."""

    config: Path
    files: PlannedFiles
    retry: int
    code: int = 0


def run_for_watcher(words: list[str]) -> int:
    """A hook's exit code, its work done by the watcher: its name, its working directory, and its
    arguments. Raises InputError if the hook sees other files than we do."""
    hook, folder, *argv = words
    if not (Path(folder) / "braindump.yml").exists():
        raise InputError(f"{folder}: found no braindump.yml, expected a submit directory")
    return (pre if hook == "pre" else post)(argv, Path(folder))


def pre(argv: list[str], folder: Path | None = None) -> int:
    """``--config FILE JOB RETRY [MAX_RETRIES]``: ask for paths. 0, or prejob.DEFER_STATUS where
    DAGMan will then ask again. ``folder`` is where the hook runs, None for here."""
    code = 0
    with _harmless(argv, "pre", folder):
        call = _call(argv, folder)
        from pegasus_hooks.prepost import prejob  # noqa: PLC0415

        config = hookconfig.load(call.config)
        code = prejob.run(
            call.files, call.retry, config, _effects(config, folder is None),
            _register(call, config),
        )  # fmt: skip
    return code


def post(argv: list[str], folder: Path | None = None) -> int:
    """``--config FILE JOB RETRY RETURN``: release paths; the exit code is the job's own.

    With ``--config FILE [--exitcode-path PROGRAM] [--retry RETRY] -- ARGUMENTS`` the job is read
    from pegasus-exitcode's arguments; PROGRAM, run with them untouched, gives the code, 0 without.
    """
    if "--" in argv or "--exitcode-path" in argv:
        return _around_exitcode(argv, folder)
    code = _exit_code(argv[-1] if argv else "")
    with _harmless(argv, "post", folder):
        _run_post(_call(argv, folder), folder is None)
    return code


def _around_exitcode(argv: list[str], folder: Path | None) -> int:
    split = argv.index("--") if "--" in argv else len(argv)
    ours, theirs = argv[:split], argv[split + 1 :]
    program = dict(pairwise(ours)).get("--exitcode-path", "")
    with _harmless(argv, "post", folder):
        # With -M it writes them where the next hook finds them.
        call = _call_of_exitcode(ours, theirs, folder)
        _run_post(call, folder is None, sizes_kept="-M" in theirs)
    if "--exitcode-path" not in ours:
        return 0
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(program, [program, *theirs])  # gives its own exit code
    except OSError as error:
        print(f"adon post hook: {program}: {error.strerror}", file=sys.stderr)
    return _EXEC_FAILED


def _run_post(call: HookArguments, timer: bool, sizes_kept: bool = False) -> None:
    """``timer``: whether a timer may keep the budget, as in a process of our own; ``sizes_kept``:
    whether somebody else keeps the sizes of what jobs wrote."""
    if not sizes_kept and "stage_" not in call.files.job:
        from pegasus_hooks.prepost import keepsizes  # noqa: PLC0415

        keepsizes.keep_sizes(call.files)
    if not _asked(call):  # needs no broker, nor what speaks to one
        return
    from pegasus_hooks.prepost import postjob  # noqa: PLC0415

    config = hookconfig.load(call.config)
    effects = _effects(config, timer)
    postjob.run(call.files, call.retry, call.code, config, effects)
    register = _register(call, config) if effects.warnings else None
    if register is not None:  # the watcher tries on, and may have been killed
        register(call.files.submit_dir, call.files.workflow)


def _asked(call: HookArguments) -> bool:
    """Whether PRE asked for the job, or would have had it come so far."""
    return "stage_" in call.files.job or call.files.decision.exists()


def _register(call: HookArguments, config: HookConfig) -> Callable[[Path, str], None] | None:
    """Has the watcher look after the workflow, where the configuration says that there is one."""
    return partial(have_watched, config.watch, call.config) if config.watch else None


class _Broker:
    """The broker's client, made with the first call: many jobs make none. A token that cannot be
    read is a broker that cannot be asked."""

    def __init__(self, config: HookConfig) -> None:
        self._config = config

    def __getattr__(self, name: str) -> Any:
        from network_provisioner.client.hookclient import client_of  # noqa: PLC0415

        try:
            client = client_of(self._config)
        except InputError as error:
            raise BrokerError(str(error)) from None
        return getattr(client, name)


def _effects(config: HookConfig, timer: bool) -> Effects:
    return Effects(cast("BrokerClient", _Broker(config)), Budget(config.timeout_s, timer=timer))


def _call(argv: list[str], folder: Path | None) -> HookArguments:
    config, rest = _config(argv)
    if len(rest) < 2 or not rest[1].lstrip("-").isdecimal():
        raise AdonError(f"found arguments {argv}, expected --config FILE JOB RETRY …")
    where = folder or Path.cwd()
    return HookArguments(
        where / config, PlannedFiles(where, rest[0]), int(rest[1]), _exit_code(rest[-1])
    )


def _call_of_exitcode(ours: list[str], theirs: list[str], folder: Path | None) -> HookArguments:
    """The job from ours and pegasus-exitcode's arguments, ``-r $RETURN … ./00/00/<job>.out``.

    The retry is DAGMan's own ``$RETRY``, which is right also where PRE asked nothing or left
    nothing. In a DAG that was planned before that stood in ours, it is pegasus-exitcode's ``-R``
    (since Pegasus 5.1.3).
    """
    config, _ = _config(ours)
    options = dict(pairwise(theirs))
    output = Path(theirs[-1]) if theirs else Path()
    if output.suffix != ".out":
        raise AdonError(f"found arguments {theirs}, expected pegasus-exitcode's, ending in a .out")
    retry = dict(pairwise(ours)).get("--retry") or options.get("-R", "0")
    code = _exit_code(options.get("-r", "0"))
    where = folder or Path.cwd()
    files = PlannedFiles(where, output.stem)
    return HookArguments(where / config, files, int(retry) if retry.isdecimal() else 0, code)


def _job_of(argv: list[str]) -> str:
    """The job that a hook's arguments name, whatever else is wrong with them."""
    if "--" in argv:  # pegasus-exitcode's, ending in the job's output
        return Path(argv[-1]).name.partition(".out")[0] if argv[-1] != "--" else ""
    rest = argv[2:] if argv[:1] == ["--config"] else argv
    return rest[0] if rest and not rest[0].startswith("--") else ""


def _config(argv: list[str]) -> tuple[Path, list[str]]:
    if len(argv) < 2 or argv[0] != "--config":
        raise AdonError(f"found arguments {argv}, expected --config FILE first")
    return Path(argv[1]), argv[2:]


def _exit_code(text: str) -> int:
    """DAGMan's $RETURN as an exit code: signals and failed submits are negative there."""
    if not text.lstrip("-").isdecimal():
        return 1
    code = int(text)
    return code if 0 <= code <= _MAX_EXIT else 1


@contextlib.contextmanager
def _harmless(argv: list[str], hook: str, folder: Path | None) -> Iterator[None]:
    """Turns whatever goes wrong into a line of the journal."""
    try:
        yield
    except Exception as error:  # the hook's promise: no failure of ours fails a workflow
        known = isinstance(error, AdonError | OSError)
        reason = str(error) if known else f"{type(error).__name__}: {error}"
        record = {
            "at": time.time(),
            "hook": hook,
            "event": "warning",
            "job": _job_of(argv),
            "reason": reason,
            "arguments": argv,
        }
        print(f"adon {hook} hook: {reason}", file=sys.stderr)
        with contextlib.suppress(OSError):  # disk full: standard error has it
            job_files.append_lines((folder or Path.cwd()) / job_files.HOOK_JOURNAL, [record])
