"""The program of the provisioning jobs: ``python -I -S job.py provision|release --level=3 …``.

HTCondor runs it on the submit host, Pegasus's kickstart around it. It always exits 0: what it could
not get, the workflow does without.
"""

import contextlib
import os
import sys
import time
from pathlib import Path


def main(argv: list[str]) -> int:
    """Run the job. ``argv`` without the program's name."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from network_provisioner.base.errors import AdonError  # noqa: PLC0415
    from network_provisioner.client import hookconfig  # noqa: PLC0415
    from network_provisioner.client.hookclient import client_of  # noqa: PLC0415
    from pegasus_hooks.provisioning import running  # noqa: PLC0415
    from pegasus_hooks.provisioning.step import PROVISION, from_arguments  # noqa: PLC0415

    try:
        verb, step = from_arguments(argv)
        place = running.place_of(os.environ, time.time())
        context = running.JobContext(place, running.pool_command)
        if step.hooks:
            config = hookconfig.load(Path(step.hooks))
            context.network = running.BrokerSession(config, client_of(config))
        (running.provision if verb == PROVISION else running.release)(step, context)
        for warning in context.warnings:
            print(f"adon {verb}: {warning}", file=sys.stderr)
    except Exception as error:  # the job's promise: no failure of ours fails a workflow
        known = isinstance(error, AdonError | OSError)
        message = str(error) if known else f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            print(f"adon provisioning job: {message}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
