"""Tests with the real services of an OpenStack: ``make test-openstack``."""
