"""Watchers: give back what nobody returned, and tell the broker what nobody could tell.

    workflows:      registry ─► DAGMan's and HTCondor's logs, decision files ─► rules ─┐
    HTCondor's own transfers: event log, queue (condor_plugins.transfers) ─────────────┴─► pending
                                                                           actions ─► broker

- :mod:`monitors.watcher.loop` looks when a log grows; :mod:`monitors.watcher.pending` does what is
  to be done at brokers, as often as it takes: both watchers are made of these
- :mod:`monitors.watcher.events` is what happens to jobs and DAGs, and who may listen
- :mod:`monitors.watcher.rules` says, of what happened, what is to be given back; pure
- :mod:`monitors.watcher.workflow_files` reads one workflow's files,
  :mod:`monitors.watcher.followed` follows it
- :mod:`monitors.watcher.watching` is the watcher over all registered workflows

Standard library only: it is started by PRE, without any site's packages.
"""
