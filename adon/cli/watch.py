"""``adon watch``: the watcher in the foreground."""

from __future__ import annotations

import argparse
from pathlib import Path

from adon.cli.parsing import Noun, log_as, logging_options, option

NOUN = Noun("watch")
_HOOKS = Path("adon-hooks.json")


@NOUN.command(
    option("--hooks", "the hooks' configuration, JSON", "FILE", Path, default=_HOOKS),
    logging_options,
)
def _run(args: argparse.Namespace) -> int:
    """Follow running workflows until they end, and release paths that hooks could not release.

    The hooks start a watcher if none runs, and it ends with the last workflow. This command runs
    one in the foreground, as a service. It waits while another watcher runs. The configuration's
    'watch' names the folder of workflows.

    Examples:
      adon watch
      adon watch --hooks /etc/adon/hooks.json

    Exit codes: 0 stopped by SIGTERM or Ctrl-C; 2 the configuration is invalid or names no folder.
    """
    from monitors.watcher import program, registry, watcher
    from monitors.watcher.registered import RegisteredWorkflows
    from network_provisioner.client import hookconfig
    from pegasus_hooks.prepost import hookrun, watched_jobs
    from pegasus_hooks.prepost.watched_jobs import listener_of

    config = hookconfig.load(args.hooks)
    folder = program.watch_folder(config, args.hooks)
    log_as(args)
    stop = watcher.stop_event()
    lock = registry.hold(folder)
    if lock is None:
        print(f"adon: another watcher has {folder}; waiting for its end", flush=True)
    while lock is None and not stop.wait(1.0):
        lock = registry.hold(folder)
    if lock is not None:
        workflows = RegisteredWorkflows(folder, config, watched_jobs, listener_of)
        program.watch(workflows, lock, stop, hookrun.run_for_watcher)
    return 0
