"""Settings for properties whose examples share what a fixture has made for the test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

shared_fixtures = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
