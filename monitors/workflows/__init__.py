"""What DAGMan and HTCondor write becomes status, job and transfer facts, and these what the archive
says of workflows.

    logs ──► facts ──► followed ──► family ──► follower ──► sink ──► the archive ──► overview,
    condor, inquiries, discovery ────────────────┘                                  analysis, report

- :mod:`~monitors.workflows.logs`: the files that DAGMan, HTCondor, Pegasus and jobs write
- :mod:`~monitors.workflows.facts`: what jobs did, as measurements
- :mod:`~monitors.workflows.followed`: one workflow, followed; :mod:`~monitors.workflows.family`:
  all of them, with those inside; :mod:`~monitors.workflows.follower`: into an archive, as they run
"""
