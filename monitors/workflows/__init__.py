"""What DAGMan and HTCondor write becomes status, job and transfer facts, and these what the archive
says of workflows.

    logs ──► facts ──► followed ──► workflow_tree ──► follower ──► sink ──► the archive
    inquiries, discovery ───────────────────────────────┘
    the archive ──► overview, analysis, report

- :mod:`~monitors.workflows.logs`: the files that DAGMan, HTCondor, Pegasus and jobs write
- :mod:`~monitors.workflows.facts`: what jobs did, as measurements
- :mod:`~monitors.workflows.followed`: one workflow, followed
- :mod:`~monitors.workflows.workflow_tree`: all of them, with those inside
- :mod:`~monitors.workflows.follower`: into an archive, as they run
"""
