"""Topologies read from and written to files, and read from controllers."""
