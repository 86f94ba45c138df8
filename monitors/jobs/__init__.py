"""Jobs as DAGMan and HTCondor tell of them: one reader of a workflow's logs, one state machine.

    nodes.log, workflow's log ─┐
    dagman.out, dagman.log ────┴─► WorkflowLogs ─► Jobs ─► release watching, advance reservations,
                                                           facts, the pool's forecast

- :mod:`monitors.jobs.logs` reads the logs, each once; :mod:`monitors.jobs.named_logs` what is left
  where DAGMan's own log of its jobs is not there
- :mod:`monitors.jobs.jobs` is the state machine: jobs with their attempts, and the DAG
- :mod:`monitors.jobs.executions` is that of one execution: its transfers by HTCondor

Standard library only: the watcher, which PRE starts without any site's packages, imports it.
"""
