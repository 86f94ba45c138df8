"""Nova's virt driver for machines that are processes: it runs inside Nova.

A server is ``machine.py``, started with a directory that has the config drive which Nova itself
writes; see there. its console is a log, its process is its power state, and deleting the server
kills it. Flavours by name do what clouds do: one with ``broken`` in it fails, one with ``hanging``
stays in BUILD until it is deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

from nova import exception
from nova.api.metadata import base
from nova.compute import power_state, task_states
from nova.virt import configdrive, fake, hardware

ROOT = Path(os.environ.get("ADON_MACHINES", "/nonexistent"))
LOGS = ROOT.parent / "log"
COMMAND = os.environ.get("ADON_MACHINE", "false").split()
_STOP_S = 5.0


def identity(node: str) -> str:
    """The id of a compute node."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, node))


class Machines(fake.FakeDriver):
    """One compute host."""

    vcpus = 16
    memory_mb = 32_768

    def __init__(self, virtapi: Any, read_only: bool = False) -> None:
        super().__init__(virtapi, read_only)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        return {identity(name): name for name in self.get_available_nodes()}

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        # The same after a restart; the fake driver's are new each time.
        return {**super().get_available_resource(nodename), "uuid": identity(nodename)}

    def spawn(
        self,
        context: Any,
        instance: Any,
        image_meta: Any,
        injected_files: Any,
        admin_password: Any,
        allocations: Any,
        network_info: Any = None,
        **more: Any,
    ) -> None:
        if "broken" in instance.flavor.name:
            raise exception.InstanceDeployFailure(reason="the hypervisor has no bootable device")
        while "hanging" in instance.flavor.name:
            time.sleep(0.1)
            instance.refresh()
            if instance.task_state == task_states.DELETING:
                raise exception.InstanceNotFound(instance_id=instance.uuid)
        super().spawn(
            context, instance, image_meta, injected_files, admin_password, allocations,
            network_info, **more,
        )  # fmt: skip
        place = ROOT / instance.uuid
        place.mkdir(parents=True)
        metadata = base.InstanceMetadata(
            instance, content=injected_files, network_info=network_info
        )
        with configdrive.ConfigDriveBuilder(instance_md=metadata) as builder:
            builder._write_md_files(str(place / "drive"))
        size = {"cores": instance.flavor.vcpus, "memory_mb": instance.flavor.memory_mb}
        (place / "size.json").write_text(json.dumps(size))
        cards = [
            {"mac": vif["address"], "port": vif["id"],
             "addresses": [ip["address"] for ip in vif.fixed_ips()]}
            for vif in network_info or []
        ]  # fmt: skip
        (place / "cards.json").write_text(json.dumps(cards))
        self._start(instance)

    def destroy(self, context: Any, instance: Any, network_info: Any, *more: Any, **named: Any):
        self._stop(instance)
        super().destroy(context, instance, network_info, *more, **named)
        condor = ROOT / instance.uuid / "disk/var/up/lib/condor/log"
        with contextlib.suppress(OSError):  # some never booted
            shutil.move(condor, LOGS / f"{instance.display_name}-{instance.uuid}")
        shutil.rmtree(ROOT / instance.uuid, ignore_errors=True)

    def power_off(self, instance: Any, *more: Any, **named: Any) -> None:
        self._stop(instance)
        super().power_off(instance, *more, **named)

    def power_on(self, context: Any, instance: Any, network_info: Any, *more: Any, **named: Any):
        super().power_on(context, instance, network_info, *more, **named)
        self._start(instance)

    def get_info(self, instance: Any, use_cache: bool = True) -> Any:
        info = super().get_info(instance, use_cache)
        process = self._processes.get(instance.uuid)
        if process is None or process.poll() is not None:
            return hardware.InstanceInfo(state=power_state.SHUTDOWN)
        return info

    def _start(self, instance: Any) -> None:
        place = ROOT / instance.uuid
        console_log = LOGS / f"{instance.display_name}-{instance.uuid}.console"
        with console_log.open("ab") as console:
            self._processes[instance.uuid] = subprocess.Popen(
                [*COMMAND, str(place)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _stop(self, instance: Any) -> None:
        process = self._processes.pop(instance.uuid, None)
        if process is None or process.poll() is not None:
            return
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
