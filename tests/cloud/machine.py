"""A machine of the cloud as a process: namespaces of its own, and what cloud-init does of a boot.

    python -m tests.cloud.machine DIRECTORY

``DIRECTORY`` has the config drive (``drive``), the network cards (``cards.json``), and what the
machine has of cores and memory (``size.json``); Nova's driver (``machines.py``) made it. The
machine has its own process ids, host name, network (a card at the bridge :data:`BRIDGE`), and its
own ``/etc`` and ``/var`` over those of the host. Its image is the host's with HTCondor, set up as
Debian's package does it, and a ``systemctl`` that starts HTCondor as an ordinary user, since it
takes no jobs from uid 0. Nothing resolves names but ``/etc/hosts``, and the machine is not in it.

Of the user data only what is known here is taken (``write_files``, ``runcmd``); else it stops.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from examples.testbed import netns
from examples.testbed.pooluser import PoolUser

BRIDGE = "cloud"
CONDOR = "ADON_CONDOR"
"""This variable has the directory that HTCondor was unpacked to."""
_CONDOR_CONFIG = """\
RELEASE_DIR = {release}
LOCAL_DIR = /var
LOCAL_CONFIG_DIR = /etc/condor/config.d
BIN = $(RELEASE_DIR)/bin
SBIN = $(RELEASE_DIR)/sbin
LIB = $(RELEASE_DIR)/lib/condor
LIBEXEC = $(RELEASE_DIR)/libexec/condor
SHARE = $(RELEASE_DIR)/share/condor
RUN = /var/lib/condor/run
LOG = /var/lib/condor/log
LOCK = /var/lib/condor/lock
SPOOL = /var/lib/condor/spool
EXECUTE = /var/lib/condor/execute
SEC_TOKEN_SYSTEM_DIRECTORY = /etc/condor/tokens.d
SEC_PASSWORD_DIRECTORY = /etc/condor/passwords.d
DISCARD_SESSION_KEYRING_ON_STARTUP = False
NUM_CPUS = {cores}
MEMORY = {memory_mb}
MOUNT_UNDER_SCRATCH =
"""
_SYSTEMCTL = """\
#!/bin/sh
# As far as user data needs it: systemctl [--no-block] start|restart condor
[ "$1" = --no-block ] && shift
case "$1 $2" in
"restart condor") [ ! -e /run/condor.pid ] || kill "$(cat /run/condor.pid)" 2> /dev/null ;;
"start condor") ;;
*) echo "systemctl: found $*" >&2; exit 1 ;;
esac
cd /var/lib/condor && setsid {master} > /var/lib/condor/log/out 2>&1 < /dev/null &
echo $! > /run/condor.pid
"""


def main() -> int:
    """See the module's text."""
    if sys.argv[1] == "--inside":
        boot(Path(sys.argv[2]))
        return 0
    place = Path(sys.argv[1])
    (card,) = json.loads((place / "cards.json").read_text())
    name = f"m{card['port'][:11]}"
    plug(name, card)
    inside = ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc"]
    inside += ["--mount-proc", "--propagation", "private"]
    me = [sys.executable, "-m", "tests.cloud.machine", "--inside", str(place)]
    child = subprocess.Popen([*netns.execute(name), *inside, "--", *me])

    def off(*_: object) -> None:
        unplug(name)
        child.kill()

    signal.signal(signal.SIGTERM, off)
    try:
        return child.wait()
    finally:
        netns.delete(name)


def plug(name: str, card: dict[str, Any]) -> None:
    """A network namespace with the card that Neutron made. Raises AdonError."""
    unplug(name)  # the kernel takes its time to clear away a namespace
    with contextlib.suppress(Exception):
        netns.delete(name)  # of the machine before it was switched off
    netns.add(name)
    netns.batch(
        None,
        [f"link add {name} type veth peer name eth0 netns {name}",
         f"link set {name} master {BRIDGE} up"],
    )  # fmt: skip
    address = card["addresses"][0]
    netns.batch(
        name,
        [f"link set eth0 address {card['mac']}", f"addr add {address}/24 dev eth0",
         "link set eth0 up"],
    )  # fmt: skip


def unplug(name: str) -> None:
    """A machine that is switched off says no good-bye."""
    with contextlib.suppress(Exception):
        netns.batch(None, [f"link del {name}"])


def boot(place: Path) -> None:
    """As process 1 of the machine; ends when it is killed."""
    latest = place / "drive/openstack/latest"
    about = json.loads((latest / "meta_data.json").read_text())
    print(f"boot of {about['name']} ({about['uuid']})", flush=True)
    socket.sethostname(about["name"])
    for part in ("etc", "var", "run"):
        up, work = place / f"disk/{part}/up", place / f"disk/{part}/work"
        up.mkdir(parents=True, exist_ok=True)
        work.mkdir(exist_ok=True)
    for part in ("etc", "var"):
        up, work = place / f"disk/{part}/up", place / f"disk/{part}/work"
        options = f"lowerdir=/{part},upperdir={up},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", f"/{part}"], check=True)
    image(place)
    instance = Path("/var/lib/cloud/data/instance-id")
    instance.parent.mkdir(parents=True, exist_ok=True)
    instance.write_text(f"{about['uuid']}\n")
    data = latest / "user_data"
    if data.exists():
        cloud_init(data.read_text())
    print("booted", flush=True)
    while True:
        try:
            os.wait()  # as process 1 does, for processes that lost their parent
        except ChildProcessError:
            signal.pause()


def image(place: Path) -> None:
    """What the machine's disk has before user data comes."""
    Path("/etc/hosts").write_text("127.0.0.1 localhost\n")
    Path("/etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
    home = Path("/var/lib/condor")
    for part in ("log", "spool", "execute", "lock", "run"):
        (home / part).mkdir(parents=True, exist_ok=True)
    condor = Path(os.environ[CONDOR])
    for part in ("config.d", "tokens.d", "passwords.d"):
        (Path("/etc/condor") / part).mkdir(parents=True, exist_ok=True)
    size = json.loads((place / "size.json").read_text())
    config = _CONDOR_CONFIG.format(release=condor / "root/usr", **size)
    Path("/etc/condor/condor_config").write_text(config)
    user = PoolUser(place)
    user.prepare()
    environment = ["env", "-i", "PATH=/usr/bin:/bin", f"HOME={user.home}", f"USER={user.name}",
                   "CONDOR_CONFIG=/etc/condor/condor_config"]  # fmt: skip
    master = user.command([*environment, str(condor / "wrap/condor_master"), "-f"])
    shim = place / "bin/systemctl"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(_SYSTEMCTL.format(master=shlex.join(master)))
    shim.chmod(0o755)
    os.environ["PATH"] = f"{shim.parent}:/usr/sbin:/usr/bin:/sbin:/bin"


def cloud_init(text: str) -> None:
    """The parts of cloud-init that are used; a part that is not known is an error."""
    if not text.startswith("#cloud-config\n"):
        raise SystemExit(f"user data: found {text[:40]!r}, expected #cloud-config")
    user_data = yaml.safe_load(text)
    if set(user_data) - {"write_files", "runcmd"}:
        raise SystemExit(f"user data: found {sorted(user_data)}, expected write_files and runcmd")
    for file in user_data.get("write_files", []):
        write_file(**file)
    for command in user_data.get("runcmd", []):
        print(f"runcmd: {command}", flush=True)
        subprocess.run(command, shell=isinstance(command, str), check=False)


def write_file(path: str, content: str, permissions: str = "0644") -> None:
    """As cloud-init's module does it: the file gets its content first, its rights then."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    file.chmod(int(permissions, 8))


if __name__ == "__main__":
    sys.exit(main())
