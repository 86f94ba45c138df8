"""Data of iRODS zones: who one is there, and HTCondor's transfer plug-in for ``irods://``."""
