"""Results of a campus's perfSONAR: accepted from pScheduler, read from esmond-style archives."""
