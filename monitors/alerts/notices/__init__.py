"""Telling people: a workflow finished, failed or is stuck, an anomaly was found.

- :mod:`monitors.alerts.notices.targets` says who is told of what, and under which key
- :mod:`monitors.alerts.notices.workflows` finds what is to be told of workflows in the archive
- :mod:`monitors.alerts.notices.service` tells it, each once, also over restarts, and only so much
  of a workflow and a user
- :mod:`monitors.alerts.notices.channels` are web hooks and commands
"""
