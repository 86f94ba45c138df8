"""What went wrong in a zone, for readers who do not know iRODS."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Mapping
from typing import Any

from irods.exception import (
    LOCKED_DATA_OBJECT_ACCESS,
    NetworkException,
    iRODSException,
)

from condor_plugins.irods.account import IrodsUrl
from network_provisioner.base.errors import AdonError

_LOGIN = "expected that of .irodsA or of the token (iinit makes a new one)"
_SENTENCES = {
    "CAT_INVALID_AUTHENTICATION": f"the zone does not accept the password of {{user}}, {_LOGIN}",
    "PAM_AUTH_PASSWORD_FAILED": f"the zone does not accept the password of {{user}}, {_LOGIN}",
    "CAT_PASSWORD_EXPIRED": f"the password of {{user}} has expired, {_LOGIN}",
    "CAT_INVALID_USER": "the zone knows no user {user}",
    "PlainTextPAMPasswordError": "the password may only be sent over TLS, expected"
    ' "irods_client_server_negotiation" in irods_environment.json',
    "DoesNotExist": "there is no such file in the zone",
    "OBJ_PATH_DOES_NOT_EXIST": "there is no such file in the zone",
    "CAT_NO_ROWS_FOUND": "there is no such file in the zone",
    "CAT_UNKNOWN_FILE": "there is no such file in the zone",
    "CAT_UNKNOWN_COLLECTION": "there is no such folder (collection) in the zone",
    "CAT_NO_ACCESS_PERMISSION": "{user} has no permission there",
    "CAT_INSUFFICIENT_PRIVILEGE_LEVEL": "{user} has no permission there",
    "SYS_NO_API_PRIV": "{user} has no permission there",
    "CAT_NAME_EXISTS_AS_COLLECTION": "that is a folder (collection), expected a file's name",
    "CAT_NAME_EXISTS_AS_DATAOBJ": "a part of that path is a file, expected folders (collections)",
    "SYS_INVALID_ZONE_NAME": "the server knows no zone {zone}",
    "CAT_INVALID_ZONE": "the server knows no zone {zone}",
    "SYS_RESC_QUOTA_EXCEEDED": "the zone's quota of {user} is used up",
    "LOCKED_DATA_OBJECT_ACCESS": "another client writes it, or lost its connection while writing",
    "SYS_REPLICA_INACCESSIBLE": "the zone has no good replica",
    "UNIX_FILE_WRITE_ERR": "the zone cannot write it, its disk may be full",
    "HIERARCHY_ERROR": "the zone's storage resource for it is down or unknown",
    "SYS_RESC_IS_DOWN": "the zone's storage resource for it is down",
    "SYS_RESC_DOES_NOT_EXIST": "the zone has no such storage resource",
    "SSLCertVerificationError": "the server's certificate is not trusted ({error}), expected"
    ' its authority in "irods_ssl_ca_certificate_file" of irods_environment.json',
    "SSLError": "TLS with the server failed ({error})",
    "NetworkException": "{host} cannot be reached, or broke off ({error})",
    "KeyError": "the server answers with the unknown code {error}",
}
_DISK = {errno.ENOSPC: "the disk of the execute machine is full"}
_DISK[errno.EDQUOT] = "the disk quota on the execute machine is used up"


def broken(error: Exception) -> bool:
    """Whether another connection may get further."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return False
    gone = (NetworkException, ConnectionError, TimeoutError, ssl.SSLError)
    return isinstance(error, (*gone, LOCKED_DATA_OBJECT_ACCESS))


def sentence(error: Exception, url: IrodsUrl, settings: Mapping[str, Any]) -> str:
    """What is wrong with what the URL names, for who the ``settings`` say."""
    if isinstance(error, AdonError):
        return str(error)
    names = [cls.__name__ for cls in type(error).__mro__]
    form = next((_SENTENCES[name] for name in names if name in _SENTENCES), "")
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        form = _DISK.get(error.errno or 0, "{error}")
    elif not form:
        form = "iRODS says {name}" if isinstance(error, iRODSException) else "{name}: {error}"
    host = f"{settings['irods_host']}:{settings['irods_port']}"
    user = settings["irods_user_name"]
    message = form.format(user=user, zone=url.zone, host=host, error=error, name=names[0])
    return f"{url.path}: {message}"
