"""The broker's process: the broker itself, and the parts beside it.

Each part (measurements, workflows, anomalies, notices, pages) is made by its module's
``make(around)`` from the configuration and what it needs; the subjects themselves are in
``monitors``.
"""
