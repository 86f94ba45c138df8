"""The files that DAGMan, HTCondor, Pegasus and the jobs write, read as they grow."""
