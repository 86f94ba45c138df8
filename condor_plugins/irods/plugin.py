"""HTCondor's transfer plug-in for ``irods://``: ``python -I plugin.py -infile F -outfile G
[-upload]``, or ``-classad`` for what it can do. Files of a call go side by side.

Exit codes: 0 all files moved; 1 not all, whose ads in G say why.
"""

import sys

_BYTES = "surrogateescape"  # names of files are in any encoding


def main(argv: list[str]) -> int:
    """Run the plug-in. ``argv`` without the program's name."""
    if argv[:1] == ["-classad"]:
        print('MultipleFileSupport = true\nPluginType = "FileTransfer"')
        print('PluginVersion = "1.0"\nSupportedMethods = "irods"')
        return 0
    from pathlib import Path  # noqa: PLC0415

    from condor_plugins.irods.results import failed_result, text, wanted_files  # noqa: PLC0415

    try:
        ads, results = (Path(argv[argv.index(word) + 1]) for word in ("-infile", "-outfile"))
    except (ValueError, IndexError):
        sys.stderr.write(f"found arguments {argv}, expected -infile FILE -outfile FILE [-upload]\n")
        return 1
    files = wanted_files(ads.read_text(errors=_BYTES))
    try:
        from condor_plugins.irods.files import move  # noqa: PLC0415
    except ImportError as error:
        why = f"{error}, expected python-irodsclient for {sys.executable}"
        reports = [failed_result(url, why) for url, _ in files]
    else:
        reports = move(files, "-upload" in argv)
    results.write_text("".join(map(text, reports)), errors=_BYTES)
    return 0 if all(result["TransferSuccess"] for result in reports) else 1


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    if code:  # threads may hang in a connection that gave no answer
        import os

        os._exit(code)
