"""Installing ADON into a Pegasus: settings in a block of its own, programs beside Pegasus's.

``parts`` says what is installed, ``home`` where, ``block`` how it stands in a file, ``changes`` how
files are replaced, ``verify`` whether the planner goes by it; ``installing`` puts them together.
Whatever is written can be taken out again without a trace, and a kill at any moment leaves either
what was there or what was meant.
"""
