"""iRODS's commands as pegasus-transfer calls them, for machines without iCommands: ``python -I
icommands.py iget|iput|iinit ARGUMENTS``.

Files move as by HTCondor's plug-in: over ``-N`` streams, verified, mended. ``iinit`` keeps the
password that it reads. Exit codes: 0 done; 1 not done, and a line says why.
"""

import os
import sys

_OPTIONS = "vfTKN:R:t:"
_PATHS = {"iget": 2, "iput": 2, "iinit": 0}


def main(argv: list[str]) -> int:
    """Run a command; ``argv`` begins with its name."""
    from getopt import GetoptError, gnu_getopt  # noqa: PLC0415

    name, *arguments = argv
    if arguments == ["-h"]:
        print(f"{name} of ADON\nVersion 4.3")  # by which pegasus-transfer knows that it is there
        return 0
    try:
        pairs, paths = gnu_getopt(arguments, _OPTIONS)
        options = dict(pairs)
        if len(paths) != _PATHS[name] or "-t" in options:
            raise GetoptError(f"expected {_PATHS[name]} paths and no ticket")
        streams = int(options.get("-N", 0))
    except (KeyError, ValueError, GetoptError) as error:
        sys.stderr.write(f"found {' '.join(argv)!r}: {error}\n")
        return 1
    try:
        why = _run(name, options, paths, streams)
    except ImportError as error:
        why = f"{error}, expected python-irodsclient for {sys.executable}"
    if why:
        sys.stderr.write(f"{name}: {why}\n")
    return 1 if why else 0


def _run(name: str, options: dict[str, str], paths: list[str], streams: int) -> str:
    """Why it failed; empty where it did not."""
    from urllib.parse import quote  # noqa: PLC0415

    from condor_plugins.irods.account import keep_password  # noqa: PLC0415
    from condor_plugins.irods.files import move  # noqa: PLC0415
    from network_provisioner.base.errors import InputError  # noqa: PLC0415

    if name == "iinit":
        try:
            keep_password(sys.stdin.readline().rstrip("\n"), os.environ)
        except (InputError, OSError) as error:
            return str(error)
        return ""
    upload = name == "iput"
    local, remote = paths if upload else reversed(paths)
    more = {"irods_default_resource": options["-R"]} if upload and "-R" in options else {}
    url = "irods://" + quote(remote, errors="surrogateescape")
    (result,) = move([(url, local)], upload, streams=streams, more=more)
    return str(result.get("TransferError", ""))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    if code:  # threads may hang in a connection that gave no answer
        os._exit(code)
