"""Programs that precede others on the PATH of a tuned transfer job: see
:mod:`pegasus_hooks.prepost.tuning`. ``bin`` holds one for each, all of them ``tuned.sh``."""
