"""A hook's work, done by the watcher where one runs; see :mod:`monitors.watcher.program`.

Starting Python and this module take a tenth of what the hook's own modules take.
"""

_SILENCE_S = 10.0  # without a sign of life: the watcher is stopped, or the machine is very busy


def done(hook: str, argv: list[str]) -> int | None:
    """The hook's exit code; None if it has to do its work itself. ``argv``: ``--config FILE``
    and the rest of its arguments."""
    import _socket  # noqa: PLC0415
    import posix  # noqa: PLC0415

    # What only this environment says the watcher does not know.
    if (
        argv[:1] != ["--config"]
        or "--exitcode-path" in argv
        or any(name.startswith(b"ADON_") for name in posix.environ)
    ):
        return None
    try:
        with open(argv[1], "rb") as file:  # noqa: PTH123 - Path's module takes longer than the rest
            folder = file.read().partition(b'"watch": "')[2].partition(b'"')[0]
        if folder.startswith(b"~/"):
            folder = posix.environ[b"HOME"] + folder[1:]
        message = "\0".join([hook, posix.getcwd(), *argv]).encode("utf-8", "surrogateescape")
        server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        server.settimeout(_SILENCE_S)
        server.connect(folder + b"/hooks.socket")
        server.sendall(message + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            if not (some := server.recv(64)):
                return None
            answer += some
        return int(answer.strip(b".\n"))
    except (OSError, KeyError, ValueError, IndexError):
        return None


def main(hook: str, argv: list[str]) -> int:
    """Run the hook, here or there."""
    code = done(hook, argv)
    if code is not None:
        return code
    from pegasus_hooks.prepost import hookrun  # noqa: PLC0415

    return hookrun.pre(argv) if hook == "pre" else hookrun.post(argv)
