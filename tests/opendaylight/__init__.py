"""Tests with a real OpenDaylight: ``make test-opendaylight``."""
