"""A Pegasus installation of our own, with a planner that does as its settings say."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

from network_provisioner.client.hookconfig import HookConfig
from pegasus_hooks import plugin
from pegasus_hooks.install.home import InstallTarget, PegasusHome, home_at
from pegasus_hooks.install.parts import InstallPart, hooks_part, plugin_part

PYTHON = "/opt/python 3/bin/python"
# Says what the real one says, by what stands in etc/pegasus.properties and the file "mood".
_PLANNER = r"""#!/bin/sh
home=$(cd "$(dirname "$0")/.." && pwd)
log() { echo "2026.01.02 03:04:05.678 UTC: [$1]  $2"; }
case "$(cat "$home/mood")" in
broken) echo " [1] java.lang.RuntimeException: No HTCondor here at a.b.C.d(C.java:7) "; exit 1;;
fragile) case "$*" in *Random*) exit 0;; esac
    echo " [1] java.lang.RuntimeException: Class not found at a.b.C.d(C.java:7) "; exit 1;;
deaf) exit 0;;
sad) log WARNING "ADON: 2 jobs of x mapped in 1 s (a 2) by the built-in rule, without ADON: why"
    exit 0;;
esac
said() {
    rc="$HOME/.pegasusrc"
    grep -q old "$home/mood" && test -f pegasus.properties && rc= # as before 5.1.3
    cat "$home/etc/pegasus.properties" $rc pegasus.properties 2>/dev/null |
        sed -n "s/^$1 = //p" | tail -1
}
profile() { sed -n "s/^ *$1: \"\(.*\)\"$/\1/p" transformations.yml; }
test "$(said pegasus.selector.site)" = org.adon.pegasus.AdonSiteSelector &&
    log INFO "ADON: 2 jobs of adon-verify mapped in 0.1 s (adon-b 2) by heft"
mkdir -p first/plan
pre=$(profile PRE) post=$(profile POST.PATH.ADON)
{
    echo "JOB stage_in_1 00/00/stage_in_1.sub"
    own=$(sed -n 's/^ *POST.ARGUMENTS: "\(.*\)"$/\1/p' transformations.yml)
    echo "SCRIPT POST stage_in_1 ${post:-$(said dagman.post.path.pegasus-exitcode) -r \$RETURN}" \
        "$own .//00/00/stage_in_1.out"
    echo "SCRIPT PRE stage_in_1 ${pre:-$(said dagman.pre)} \$JOB \$RETRY \$MAX_RETRIES"
} > first/plan/adon-verify-0.dag
mkdir -p first/plan/00/00
printf 'wf_uuid: "u"\ndag: "adon-verify-0.dag"\n' > first/plan/braindump.yml
exit 0
"""
# Of 5.1.2: an option that it does not know fails the job.
_EXITCODE = """#!/bin/sh
while getopts r:l:M:NIUf:s: one; do test "$one" != '?' || exit 2; done
shift $((OPTIND - 1))
test -s "$1" || { echo "found no output $1" >&2; exit 1; }
"""


def jar(content: str = "one") -> bytes:
    """A jar that is known as ours."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        # Without a date: the same bytes at every call.
        name = zipfile.ZipInfo(plugin.SITE_SELECTOR_CLASS.replace(".", "/") + ".class")
        archive.writestr(name, content)
    return out.getvalue()


def part(content: str = "one", config: str | None = None) -> InstallPart:
    """The plug-in part."""
    return plugin_part(jar(content), PYTHON, Path(config) if config else None, None)


def hooks(place: InstallTarget, config: HookConfig | None = None) -> InstallPart:
    """The hooks part, for an installation at ``place``."""
    config = config or HookConfig("http://127.0.0.1:8470")
    return hooks_part(place.programs, PYTHON, Path("/opt/pegasus/bin/pegasus-exitcode"), config)


@dataclass(frozen=True)
class FakePegasus:
    """Folders and files as an installation has them."""

    root: Path

    @property
    def home(self) -> PegasusHome:
        return home_at(self.root)

    @property
    def properties(self) -> Path:
        return self.root / "etc" / "pegasus.properties"

    @property
    def jar(self) -> Path:
        return self.root / "share" / "pegasus" / "java" / plugin.JAR_NAME

    @property
    def hooks(self) -> list[Path]:
        """Where an installation for all puts the hooks."""
        folder = self.root / "share" / "pegasus" / "adon"
        return [folder / name for name in ("adon-pre", "adon-exitcode", "adon-hooks.json")]

    def mood(self, name: str) -> None:
        (self.root / "mood").write_text(name)

    def tree(self) -> dict[str, tuple[int, bytes | None]]:
        """Every file with mode and content, every folder."""
        return {
            str(path.relative_to(self.root)): (
                path.lstat().st_mode,
                path.read_bytes() if path.is_file() else None,
            )
            for path in sorted(self.root.rglob("*"))
        }


def make_pegasus(root: Path, properties: bytes | None = None) -> FakePegasus:
    """Write an installation below ``root``."""
    for folder in ("bin", "etc", "share/pegasus/java"):
        (root / folder).mkdir(parents=True)
    planner = root / "bin" / "pegasus-plan"
    planner.write_text(_PLANNER)
    planner.chmod(0o755)
    exitcode = root / "bin" / "pegasus-exitcode"
    exitcode.write_text(_EXITCODE)
    exitcode.chmod(0o755)
    (root / "share/pegasus/java/pegasus.jar").write_bytes(b"jar")
    fake = FakePegasus(root)
    fake.mood("fine")
    if properties is not None:
        fake.properties.write_bytes(properties)
    return fake
