"""What happened: workflows' status, jobs' runtimes, transfers' throughput, each measured once.

    files of DAGMan, HTCondor, Pegasus ──► workflows ─────────────────┐
    ended transits ──────────────────────────────────► transfers ─────┤
    agents' probes, perfSONAR ──► measurements ───────────────────────┴──► archive ──► knowledge
                                                                              │
                                    dashboard, notices, anomalies, workflows ◄┘

- :mod:`monitors.archive.archive` keeps measurements (in :mod:`monitors.archive.stores`, until
  ``retention`` makes roll-ups of them) and tells estimates; the site selector and the
  provisioner read :mod:`monitors.archive.knowledge`
- :mod:`monitors.workflows` follows running workflows and says what came of them
- :mod:`monitors.measurements` says when to measure and hands it out; agents carry it out by probes
- :mod:`monitors.alerts.anomalies` finds what changed, :mod:`monitors.alerts.notices` tells people
- :mod:`monitors.rules` and :mod:`monitors.recording` say who may start, see and record what
"""
