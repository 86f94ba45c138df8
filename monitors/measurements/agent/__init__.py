"""Agents: programs at the ends of paths that measure when the broker's schedule says so."""
