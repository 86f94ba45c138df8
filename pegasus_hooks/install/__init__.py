"""Installing ADON into a Pegasus: settings in a block of its own, programs beside Pegasus's.

``parts`` says what is installed, ``home`` where, ``block`` how it stands in a file, ``ours`` which
files are ours, ``changes`` how files are replaced, ``verify`` whether a plan has it; ``installing``
puts them together, ``catalog`` does the same for one transformation catalog. Whatever is written
can be taken out again without a trace, and a kill at any moment leaves either what was there or
what was meant. ``inuse`` knows the workflows that would miss it.
"""
