"""Reserving for a whole workflow in advance, and correcting it as jobs end early or late.

    submit directory ─► dag ────────────┐
    archive, catalogs ─► job_estimates ─┼─► predict ─► booking ─► ask, shift, release
    events of the run ─► progress ──────┘                 ▲
                                         what is held ────┘

- :mod:`monitors.workflows.planned.dag` reads the planned DAG: jobs, what they move, who waits
  for whom
- :mod:`pegasus_hooks.advance.job_estimates` is how long jobs and bytes take, as site selection
  estimates it
- :mod:`pegasus_hooks.advance.progress` is the progress of a run, from what the watcher reads
- :mod:`pegasus_hooks.advance.predict` says when each transfer will begin and end, and adds them
  up by pair of sites; pure
- :mod:`pegasus_hooks.advance.booking` says what to change of what is held (pure), and does it at
  the broker
- :mod:`pegasus_hooks.advance.listening` puts it together from a submit directory, and does all that
  while the watcher watches
"""
