"""Measurements, workflows and anomalies over HTTP, beside the broker's own routes."""
