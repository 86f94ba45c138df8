"""What happened: workflows' status, jobs' runtimes, transfers' throughput, each measured once.

    DAGMan's files ──► follow ──► archive ──► estimates ──► site_selector, network_provisioner
    ended transits ──► transfers ──┘

- :mod:`monitors.archive` keeps measurements and estimates from them
- :mod:`monitors.follow` follows running workflows into the archive
- :mod:`monitors.transfers` records what ended transits moved
- :mod:`monitors.status` is where a workflow stands, :mod:`monitors.timeline` when each job ran
- :mod:`monitors.jobfacts` is what jobs and their transfers did, :mod:`monitors.analysis` what it
  comes to, :mod:`monitors.overview` all workflows; :mod:`monitors.notices` tells people
"""
