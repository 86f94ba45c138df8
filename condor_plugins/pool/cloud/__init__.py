"""Machines for a pool: what a cloud can do (``protocol``), and the clouds there are.

``openstack`` asks an OpenStack for servers, whose user data ``cloudinit`` writes; ``startd`` starts
HTCondor's own daemons on this machine, by the settings of ``workerconfig``; ``command`` calls a
program of the admin's.
"""
