"""``adon pool run``: the daemon that makes the pool larger and smaller, by hand or under HTCondor's
master."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.output import print_json
from adon.cli.parsing import DRY_RUN, add_json, config, flag, log_as, logging_options
from network_provisioner.base.errors import AdonError, InputError, printable

if TYPE_CHECKING:
    from adon.config.sections import Config
    from condor_plugins.pool.expander.cycle import Expander
    from condor_plugins.pool.expander.decision import PoolDecision

_LOOKED_S = 1.0

CONFIG = config("adon.yml with section 'expansion'")
OPTIONS = (
    CONFIG,
    flag("--once", "run one cycle, then exit"),
    DRY_RUN,
    logging_options,
    add_json,
)


def run(args: argparse.Namespace) -> int:
    """Start machines before jobs need them, and remove idle ones.

    Until SIGTERM, it reads queues, running DAGs and leases, decides, and acts. SIGHUP makes it
    reread adon.yml. Only one process at a time uses a directory. If it is killed, the next one
    takes over.

    Examples:
      adon pool run --once --dry-run      what it would do now, and why
      adon pool run --config /etc/adon.yml
      adon install condor --expander --config /etc/adon.yml     run it under HTCondor
    """
    from adon.config.adon_yml import load_config
    from adon.config.expansion import section_of

    settings = load_config(args.config)
    directory = Path(section_of(settings, args.config).directory)
    log_as(args)
    say = logging.getLogger("adon.pool").info
    with contextlib.nullcontext() if args.dry_run else _alone(directory), ExitStack() as held:
        expander, every_s = held.enter_context(_opened(settings, args.config, say))
        if args.once:
            return _show(args, expander.run_cycle(args.dry_run))
        signals = _Signals()
        say(f"at work, every {every_s:g} s")
        while _go_on(args, expander, every_s, signals, say) == signal.SIGHUP:
            try:
                settings = load_config(args.config)
                with ExitStack() as new:
                    expander, every_s = new.enter_context(_opened(settings, args.config, say))
                    held.close()
                    held.push(new.pop_all())
                say("adon.yml was read again")
            except AdonError as error:
                say(f"the previous adon.yml stays in use: {error}")
        if not args.dry_run:
            with contextlib.suppress(AdonError):  # they end by themselves
                expander.end()
        say("has ended")
    return 0


def _show(args: argparse.Namespace, decision: PoolDecision) -> int:
    if args.json:
        print_json(decision.as_measurement("").details)
        return 0
    kinds = ", ".join(f"{count} {state}" for state, count in decision.machines.items() if count)
    jobs = ", ".join(f"{count} {source}" for source, count in decision.demand.items())
    print(f"machines: {kinds or 'none'}; jobs: {jobs}")
    for part in decision.reason.split("; "):
        print(printable(part))
    return 0


class _Signals:
    """Those that came, each of which ends a wait."""

    def __init__(self) -> None:
        self._woken, self._came = threading.Event(), list[int]()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._take)

    def _take(self, number: int, _: object) -> None:
        self._came.append(number)
        self._woken.set()

    def wait(self, seconds: float) -> int | None:
        self._woken.wait(max(0.0, seconds))
        self._woken.clear()
        return self._came.pop(0) if self._came else None


def _go_on(
    args: argparse.Namespace,
    expander: Expander,
    every_s: float,
    signals: _Signals,
    say: Callable[[str], None],
) -> int:
    """Turn by turn until a signal, which it returns."""
    reported = ""
    while True:
        began, problem = time.monotonic(), ""
        try:
            decision = expander.run_cycle(args.dry_run)
            if args.dry_run:
                say(decision.reason)
        except AdonError as error:
            problem = str(error)
        if problem != reported:
            say(f"nothing is done: {problem}" if problem else "works again")
            reported = problem
        number = signals.wait(began + every_s - time.monotonic())
        if number is not None:
            return number


@contextlib.contextmanager
def _opened(
    config: Config, path: Path, say: Callable[[str], None]
) -> Iterator[tuple[Expander, float]]:
    """An expander as the file says, and how often it looks. Raises AdonError."""
    from adon.config.expansion import cloud_of, limits_of, section_of
    from condor_plugins.pool.cloud.protocol import CloudError
    from condor_plugins.pool.cloud.workerconfig import site_attributes
    from condor_plugins.pool.expander.condor import Condor
    from condor_plugins.pool.expander.cycle import Expander
    from condor_plugins.pool.queue import configured_attributes
    from condor_plugins.pool.run_times import RunTimes
    from monitors.archive.archive import Archive
    from monitors.archive.outbox import Outbox

    section = section_of(config, path)
    cloud = cloud_of(config, path)
    try:
        cloud.check()
    except CloudError as error:
        say(f"the cloud does not answer now: {error}")
    with Archive(config.broker.archive) as archive, Outbox(archive) as outbox:
        condor = Condor(config.pool.collector if config.pool else "")
        run_times = RunTimes(archive, section.jobs_take)
        limits = limits_of(section)
        values = {**site_attributes(section.site), **configured_attributes(section.config)}
        record = outbox.record_many
        yield (
            Expander(section.pool, values, limits, cloud, condor, archive, run_times, record, say),
            section.every,
        )


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Raises InputError if another process is at work."""
    from adon.config.expansion import LOCK

    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = (directory / LOCK).open("a")
    except OSError as error:
        raise InputError(
            f"{directory}: {error.strerror}, expected a directory to write in"
        ) from None
    with held:
        # Who only looks whether another is at work holds it for a moment.
        until = time.monotonic() + _LOOKED_S
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise InputError(
                        f"{directory}: found another 'adon pool run' at work, expected none"
                    ) from None
                time.sleep(0.1)
        yield
