"""Reserving for a whole workflow in advance, and correcting it as jobs end early or late.

    submit directory ─► dag ─┐
    archive, catalogs ─► beliefs ─┼─► predict ─► windows ─► correct ─► ask, shift, give back
    events of the run ─► progress ─┘                          ▲
                                             what is held ────┘

- :mod:`monitors.workflows.planned.dag` reads the planned DAG: jobs, what they move, who waits
  for whom
- :mod:`pegasus_hooks.advance.beliefs` is how long jobs and bytes take, as site selection believes
- :mod:`pegasus_hooks.advance.progress` is where a run stands, from what the watcher hears
- :mod:`pegasus_hooks.advance.predict` says when each transfer will begin and end, in terms of
  :mod:`pegasus_hooks.advance.predict`; pure
- :mod:`pegasus_hooks.advance.predict` adds them up by pair of sites; pure
- :mod:`pegasus_hooks.advance.booking` says what to change of what is held; pure
- :mod:`pegasus_hooks.advance.booking` does it at the broker
- :mod:`pegasus_hooks.advance.listening` does all that while the watcher watches
- :mod:`pegasus_hooks.advance.listening` puts it together from a submit directory
"""
