"""The watcher: gives back what no hook could, and tells what no hook could tell.

    registry ─► watcher ─► one source per workflow ─► events ─► rules ─► duties ─► broker
                           (DAGMan's and HTCondor's      │
                            logs, decision files)        └─► listeners

- :mod:`pegasus_hooks.watch.events` is what happens to jobs and DAGs, and who may listen
- :mod:`pegasus_hooks.watch.rules` says, of what happened, what is to be given back; pure
- :mod:`pegasus_hooks.watch.source` reads one workflow's files
- :mod:`pegasus_hooks.watch.duties` does it at the broker, as often as it takes
- :mod:`pegasus_hooks.watch.watching` is the loop over all registered workflows

Standard library only: it is started by PRE, without any site's packages.
"""
