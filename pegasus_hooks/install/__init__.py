"""Installing ADON into a Pegasus: settings in a block of its own, programs beside Pegasus's.

``parts`` says what is installed, ``home`` where; ``installing`` makes of both a list of edits
(``edits``), ``catalog`` does the same for one transformation catalog, and ``verify`` asks a planner
whether it goes by them. Whatever is written can be taken out again without a trace.
"""
