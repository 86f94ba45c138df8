"""The broker over HTTP: REST under ``/v1``, its description under ``/openapi.json``.

    connection ─► gate (who, how much) ─► route ─► worker ─► broker ─► answer

Every error, also of validation and routing, has one shape: ``{"error": {"code", "message"}}``.
"""

from network_provisioner.api.app import create_app, description
from network_provisioner.api.gate import MAX_BODY_BYTES
from network_provisioner.api.problems import STATUS

__all__ = ["MAX_BODY_BYTES", "STATUS", "create_app", "description"]
