"""A relay's agent that takes its sessions from a file instead of a broker.

    python -m tests.relay_process ADDRESS SESSIONS.json STATUS.json [CERTIFICATE KEY CA]

Whenever the first file changes its sessions are served; the second says how many were taken in,
and the open connections of each.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

from network_provisioner.client.http1 import Tls
from network_provisioner.relay.agent import TPROXY_PORT, RelayAgent
from network_provisioner.relay.run import contexts_of, reserved_start
from network_provisioner.relay.sessions import session_from_dict
from network_provisioner.relay.sockets import tproxy


async def main(address: str, sessions: Path, status: Path, *tls: str) -> None:
    """Until it is killed."""
    contexts = contexts_of(Tls(tls[2], tls[0], tls[1])) if tls else None
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tproxy(address, TPROXY_PORT):
        agent = RelayAgent(address, contexts=contexts, begin=reserved_start)
        agent.start()
        before = ""
        while True:
            text = sessions.read_text(encoding="utf-8")
            if text != before:
                await agent.take_in(map(session_from_dict, json.loads(text)))
                before = text
            state = json.dumps({"read": before, "connections": agent.connections()})
            status.with_suffix(".new").write_text(state, encoding="utf-8")
            status.with_suffix(".new").replace(status)
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(Path, sys.argv[2:4]), *sys.argv[4:]))
