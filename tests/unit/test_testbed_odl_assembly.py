from __future__ import annotations

import hashlib
import ssl
import struct
from pathlib import Path
from xml.etree import ElementTree

import certifi
import pytest

from adon.machine import packages
from examples.testbed import odl_assembly, truststore
from network_provisioner.errors import MissingError

CONFIG = """# comment with featuresBoot = in it
featuresRepositories = file:x.xml

featuresBoot = 1234-abcd

featuresBootAsynchronous=false
"""


def test_the_features_are_started(tmp_path: Path) -> None:
    settings = tmp_path / "features.cfg"
    settings.write_text(CONFIG)
    odl_assembly._boot_features(settings)
    boot = "featuresBoot = 1234-abcd,odl-openflowplugin-flow-services,odl-restconf-nb"
    assert settings.read_text() == CONFIG.replace("featuresBoot = 1234-abcd", boot)


@pytest.mark.parametrize("text", ["", "nothing=1\n", "featuresBoot=a\nfeaturesBoot=b\n"])
def test_settings_of_another_shape_are_told(tmp_path: Path, text: str) -> None:
    settings = tmp_path / "features.cfg"
    settings.write_text(text)
    with pytest.raises(MissingError, match="featuresBoot"):
        odl_assembly._boot_features(settings)


def test_the_project_asks_for_the_features_that_are_started() -> None:
    root = ElementTree.parse(odl_assembly.POM).getroot()
    names = [e.text for e in root.iter("{http://maven.apache.org/POM/4.0.0}artifactId")]
    assert set(odl_assembly.FEATURES) <= set(names)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("[ERROR] x: Unknown host repo.maven.apache.org", "no network"),
        ("… Connect to repo:443 failed: Connection refused", "no network"),
        ("java.io.IOException: No space left on device", "the disk is full"),
        ("[INFO] a\n[ERROR] Failed to execute goal: b\n[ERROR] c", "Maven: Failed to execute goal"),
        ("[INFO] a", "Maven ended with exit code 7"),
    ],
)
def test_why_maven_failed_is_one_line(log: str, said: str) -> None:
    reason = odl_assembly._explain(log, 7)
    assert said in reason and "\n" not in reason


def test_what_is_there_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(packages, "ensure", lambda name, progress: tmp_path / name)
    home = packages.cache_root() / f"opendaylight-{odl_assembly._key()}"
    home.mkdir(parents=True)
    said: list[str] = []
    found = odl_assembly.ensure(progress=said.append)
    assert found == odl_assembly.Assembly(home, tmp_path / "maven" / "wrap") and said == []


def test_a_cache_that_cannot_be_had_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "adon").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(packages, "ensure", lambda name, progress: tmp_path)
    with pytest.raises(MissingError, match=r"^OpenDaylight: .*: Not a directory|File exists"):
        odl_assembly.ensure(progress=print)


def test_sizes_are_added_up_while_files_go(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "x").write_bytes(bytes(7))
    (tmp_path / "a" / "b" / "y").write_bytes(bytes(4))
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert odl_assembly._size_of(tmp_path) == 11


def test_javas_own_settings_do_not_reach_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/somewhere")
    monkeypatch.setenv("PATH", "/usr/bin")
    env = odl_assembly.java_environment(Path("/ours"))
    assert env["PATH"] == "/ours:/usr/bin" and "JAVA_HOME" not in env


def test_a_key_store_holds_the_certificates_and_its_seal() -> None:
    """As Java's ``JavaKeyStore`` reads it."""
    pem = Path(certifi.where()).read_text()
    certificates = truststore.read_pem(pem)
    assert len(certificates) == pem.count("BEGIN CERTIFICATE") > 50
    assert ssl.DER_cert_to_PEM_cert(certificates[0]).strip() in pem
    data = truststore.key_store(certificates)
    magic, version, count = struct.unpack_from(">III", data)
    assert (magic, version, count) == (0xFEEDFEED, 2, len(certificates))
    at, found = 12, []
    for _ in range(count):
        (tag,) = struct.unpack_from(">I", data, at)
        (alias,) = struct.unpack_from(">H", data, at + 4)
        at += 6 + alias + 8
        (kind,) = struct.unpack_from(">H", data, at)
        assert tag == 2 and data[at + 2 : at + 2 + kind] == b"X.509"
        at += 2 + kind
        (size,) = struct.unpack_from(">I", data, at)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    assert found == certificates
    whole = truststore.PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + data[:at]
    assert data[at:] == hashlib.sha1(whole).digest()


def test_a_store_without_certificates_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty.crt"
    empty.write_text("nothing")
    monkeypatch.setattr(truststore, "_SYSTEM", empty)
    with pytest.raises(MissingError, match="found no certificate"):
        truststore.write(tmp_path / "trusted.jks")
