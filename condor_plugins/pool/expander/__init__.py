"""The daemon that makes a pool larger and smaller: one cycle after the other.

    observation ─► demand ─► condor_plugins.pool.scaling.plan ─► cycle, which acts and records

``observation`` is what there is, in the cloud, the collector, the schedds and the submit
directories of their DAGs; ``demand`` is what is wanted, each job once; ``condor`` is HTCondor
itself; ``cobald`` gives the same demand to COBalD. Nothing is kept that could be lost: killed at
any step, the next cycle finds machines in their cloud, what they do in the collector, and what they
cost in the archive.
"""
