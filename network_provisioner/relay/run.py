"""An agent's process: asks the broker again and again which sessions it is to serve, and says with
each question how it stands. Without a broker it goes on with what it was told last."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace

from network_provisioner.base.errors import BrokerError, InputError, MissingError
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.http1 import Tls, quoted
from network_provisioner.relay.agent import TPROXY_PORT, Contexts, RelayAgent
from network_provisioner.relay.sessions import AgentStatus, Session, session_from_dict
from network_provisioner.relay.sockets import begin_with, tproxy

log = logging.getLogger(__name__)

_MSS_BYTES = 1448
_begun: dict[str, int] = {}  # segments by agents' addresses
_RETRY_S = 5.0  # where this system is not ready
_AGAIN_S = 0.3  # where the broker does not answer


def contexts_of(tls: Tls) -> Contexts | None:
    """TLS between agents, by the certificate that the broker is shown; None without one. Raises
    InputError for files that cannot be used."""
    if tls.certificate is None:
        return None
    contexts = []
    try:
        for kind in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
            context = ssl.SSLContext(kind)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.check_hostname = False  # its name is that of an agent, not of a host
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_cert_chain(tls.certificate, tls.key, password="")
            context.load_verify_locations(tls.ca)
            contexts.append(context)
    except (OSError, TypeError, ValueError) as error:
        files = f"{tls.certificate}, {tls.key}, {tls.ca}"
        raise InputError(f"{files}: {error}, expected readable PEM files") from None
    return Contexts(*contexts)


def reserved_start(session: Session) -> None:
    """Have the streams of a session begin at its rate, as far as its buffers hold that."""
    whole = session.buffer_bytes // session.streams // 4  # as decision.settings has it
    segments = max(10, whole // _MSS_BYTES)
    try:
        if _begun.get(session.peer_address) != segments:
            begin_with(session.peer_address, segments)
            _begun[session.peer_address] = segments
    except MissingError as error:
        log.warning("streams to %s begin slowly: %s", session.peer, error)


async def serve(name: str, address: str, broker: BrokerClient, contexts: Contexts | None) -> None:
    """Be the agent ``name`` until this is cancelled. Where the system is not ready for that, the
    broker is told why, and it is tried again."""
    warning = ""
    while True:
        unready = ""
        with ExitStack() as stack:
            try:
                stack.enter_context(tproxy(address, TPROXY_PORT))
                agent = RelayAgent(address, TPROXY_PORT, contexts, reserved_start)
                agent.start()
            except (MissingError, OSError) as error:
                unready, agent = str(error), RelayAgent(address)
            if unready != warning:
                log.warning("%s", f"connections go directly: {unready}" if unready else "ready")
            warning = unready
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_RETRY_S if unready else None):
                        status = AgentStatus(0, unready, tls=contexts is not None)
                        await _follow(name, agent, broker, status)
            finally:
                await agent.close()


async def _follow(name: str, agent: RelayAgent, broker: BrokerClient, status: AgentStatus) -> None:
    answered, path = True, f"/v1/relays/{quoted(name)}"
    while True:
        status = replace(status, connections=agent.connections())
        try:
            answer = await asyncio.to_thread(broker.call, "POST", path, asdict(status))
            if answer["revision"] != status.revision:
                await agent.take_in([session_from_dict(session) for session in answer["sessions"]])
                status = replace(status, revision=answer["revision"])
            answered = True
        except (BrokerError, InputError, LookupError, TypeError) as error:
            if answered:  # once, and not with every question
                log.warning("the sessions stay as they are: %s", error)
            answered = False
            await asyncio.sleep(_AGAIN_S)
        await agent.expire()


def run(name: str, address: str, broker: BrokerClient, contexts: Contexts | None) -> None:
    """As :func:`serve`, until INT or TERM."""

    async def until_stopped() -> None:
        task = asyncio.create_task(serve(name, address, broker, contexts))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(until_stopped())
