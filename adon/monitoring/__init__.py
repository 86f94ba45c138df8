"""What the broker's process does beside paths: measurements, workflows, anomalies, notices, pages.

Each module here is one part, made by its ``make(around)`` from the configuration and what it needs;
the subjects themselves are in ``monitors``.
"""
