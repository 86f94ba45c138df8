"""Watchers: give back what nobody returned, and tell the broker what nobody could tell.

    workflows:      registry ─► jobs (monitors.jobs), decision files ─► rules ─────────┐
    HTCondor's own transfers: event log, queue (condor_plugins.transfers) ─────────────┴─► pending
                                                                           actions ─► broker

- :mod:`monitors.watcher.watcher` looks when a log grows; :mod:`monitors.watcher.pending` does what
  is to be done at brokers, as often as it takes: for workflows and HTCondor alike
- :mod:`monitors.watcher.rules` says, of what happened, what is to be given back; pure
- :mod:`monitors.watcher.held_paths` has what one workflow holds, and says who may listen to what
  happens to its jobs
- :mod:`monitors.watcher.registered` has all registered workflows, and reads their files

Standard library only: it is started by PRE, without any site's packages.
"""
