"""Programs that stand before others on the PATH of a tuned transfer job: see
:mod:`pegasus_hooks.tuning`. The folder ``bin`` holds one for each, all of them ``tuned.sh``."""
