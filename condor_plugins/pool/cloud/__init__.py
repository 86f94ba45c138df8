"""Machines for a pool: what a cloud can do and when it is asked again (``protocol``), and the
clouds there are.

``openstack`` asks an OpenStack for servers, ``startd`` starts HTCondor's own daemons on
this machine; ``workerconfig`` writes the user data of the former and the settings of both.
``command`` calls a program of the admin's.
"""
