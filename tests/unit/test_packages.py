"""The private package cache: what is chosen, how it is wrapped, what is said when it fails."""

from __future__ import annotations

import fcntl
import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adon.machine import packages, relocate
from adon.machine.apt import (
    AptSource,
    Deb,
    choose_sources,
    explain,
    parse_plan,
    parse_targets,
    parse_uris,
)
from adon.machine.packages import SETS, ensure, key_of, select
from network_provisioner.base.errors import MissingError

TARGETS = """\
Packages|http://mirror.test/debian/|bookworm|main
DEP-11|http://mirror.test/debian/|bookworm|main
Packages|http://mirror.test/debian/|bookworm|contrib
Packages|http://mirror.test/debian/|bookworm-updates|main
Packages|http://mirror.test/debian-security/|bookworm-security|main
Packages|http://vendor.test/apt|nodistro|main
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "adon"


def say_nothing(_line: str) -> None:
    pass


def test_the_machines_own_suites_are_used_and_no_vendors() -> None:
    chosen = choose_sources(parse_targets(TARGETS), "bookworm", None)
    assert [(s.uri, s.suite) for s in chosen] == [
        ("http://mirror.test/debian/", "bookworm"),
        ("http://mirror.test/debian/", "bookworm-updates"),
        ("http://mirror.test/debian-security/", "bookworm-security"),
    ]


def test_another_suite_comes_from_the_machines_mirror() -> None:
    chosen = choose_sources(parse_targets(TARGETS), "bookworm", "sid")
    assert chosen == [AptSource("http://mirror.test/debian/", "sid", "main")]


@pytest.mark.parametrize("codename", ["trixie", ""])
def test_a_machine_without_sources_of_its_release_is_told(codename: str) -> None:
    with pytest.raises(MissingError, match="expected a Debian machine"):
        choose_sources(parse_targets(TARGETS), codename, "sid")


def test_plan_and_sizes_are_read_from_apt() -> None:
    plan = (
        "Reading package lists...\n"
        "Inst zlib1g (1:1.2.13.dfsg-1 Debian:12.15/oldstable [amd64])\n"
        "Inst bwa [0.7.16-1] (0.7.17-7+b2 Debian:12.15/oldstable [amd64])\n"
        "Conf zlib1g (1:1.2.13.dfsg-1 Debian:12.15/oldstable [amd64])\n"
    )
    assert parse_plan(plan) == {"zlib1g": "1:1.2.13.dfsg-1", "bwa": "0.7.17-7+b2"}
    uris = (
        "'http://m/pool/b/bwa_0.7.17-7+b2_amd64.deb' bwa_0.7.17-7+b2_amd64.deb 235012 SHA256:ab\n"
    )
    assert parse_uris(uris) == {"bwa": 235012}


@pytest.mark.parametrize(
    ("wrote", "line"),
    [
        ("W: Failed to fetch http://m.test/x  Could not resolve 'm.test'", "no network: m.test"),
        ("E: Write error - write (28: No space left on device)", "the disk is full"),
        ("N: note\nE: Unable to locate package condor\n", "Unable to locate package condor"),
        ("", "no reason"),
        (" E: \n", "no reason"),
        ("E:\nE: Unable to locate package condor\n", "Unable to locate package condor"),
    ],
)
def test_apts_failure_becomes_one_line(wrote: str, line: str) -> None:
    assert line in explain(wrote)


@given(st.text())
@example("E:")
def test_whatever_apt_writes_is_explained_in_one_line(wrote: str) -> None:
    said = explain(wrote)
    assert said
    assert len(said.splitlines()) == 1


names = st.sampled_from(
    ["bwa", "libhts3", "libc6", "libpython3.11-stdlib", "perl", "zlib1g", "libssl3", "dpkg", "tar"]
)


@given(st.lists(names, unique=True), st.sampled_from(sorted(SETS)))
def test_own_release_never_brings_a_c_library_and_no_set_an_interpreter(
    wanted: list[str], set_name: str
) -> None:
    spec = SETS[set_name]
    chosen = {d.name for d in select(spec, [Deb(n, "1", 1) for n in wanted])}
    assert chosen <= set(wanted)
    assert not chosen & {"perl", "libpython3.11-stdlib", "dpkg", "tar"}
    assert ("libc6" in chosen) == (spec.relocated and "libc6" in wanted)
    assert ("libssl3" in chosen) == ("libssl3" in wanted)


def test_what_is_there_is_returned_without_a_word(cache: Path) -> None:
    release = packages.codename()
    home = cache / f"bio-{key_of(SETS['bio'], release, packages.platform.machine())}"
    home.mkdir(parents=True)
    said: list[str] = []
    assert ensure("bio", progress=said.append) == home
    assert said == []


def test_a_build_that_fails_leaves_nothing_that_looks_whole(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_arguments: object) -> None:
        raise MissingError("apt-get update: no network: mirror.test could not be reached")

    monkeypatch.setattr(packages, "_build_from", no_network)
    with pytest.raises(MissingError, match=r"\AHTCondor: apt-get update: no network"):
        ensure("condor", progress=say_nothing)
    assert [p.name for p in cache.iterdir() if not p.name.startswith(".")] == []
    with (cache / ".condor.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_full_disk_is_told_before_anything_is_fetched(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        packages.shutil, "disk_usage", lambda _path: packages.shutil._ntuple_diskusage(9, 8, 10**6)
    )
    with pytest.raises(MissingError, match=r"HTCondor: found 1 MB free in .*, expected 900 MB"):
        ensure("condor", progress=say_nothing)
    assert cache.is_dir()


def test_a_cache_that_cannot_be_made_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(MissingError, match=r"HTCondor: .*file"):
        ensure("condor", progress=say_nothing)


def test_programs_of_the_machine_are_used_when_all_are_there(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in SETS["bio"].programs:
        (tools / name).write_text("#!/bin/sh\nexit 0\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    home = ensure("bio", progress=say_nothing)
    assert (home / "wrap/bwa").readlink() == tools / "bwa"
    assert json.loads((home / "packages.json").read_text())["suite"] == "installed"
    assert ensure("bio", progress=say_nothing) == home


def test_fonts_that_are_brought_are_found(tmp_path: Path) -> None:
    tree, home = tmp_path / "tree", tmp_path / "home"
    for part in ("etc/fonts", "usr/share/fonts/truetype", "usr/bin"):
        (tree / "root" / part).mkdir(parents=True)
    tool = tree / "root/usr/bin/tool"
    tool.write_text('#!/bin/sh\necho "$FONTCONFIG_FILE"\n')
    tool.chmod(0o755)
    relocate.trim(tree / "root")
    relocate.wrap(tree, home)
    tree.rename(home)
    said = subprocess.run([home / "wrap/tool"], capture_output=True, text=True, check=True).stdout
    settings = ElementTree.parse(said.strip()).getroot()
    # Beside the fonts, so that the place need not be known when it is written.
    assert Path(said.strip()).parent == home / "root/usr/share/fonts"
    assert [(e.get("prefix"), e.text) for e in settings.iter("dir")] == [("relative", ".")]


def test_chromiums_program_is_taken_not_the_script_that_names_its_installed_place(
    tmp_path: Path,
) -> None:
    for part in ("usr/bin", "usr/lib/chromium"):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "chromium-headless-shell").touch(mode=0o755)
    assert relocate.programs(tmp_path) == [tmp_path / "usr/lib/chromium/chromium-headless-shell"]


def test_libraries_that_only_other_libraries_use_are_found(tmp_path: Path) -> None:
    triplet = tmp_path / "usr/lib/x86_64-linux-gnu"
    for part in ("pulseaudio", "alsa-lib"):
        (triplet / part).mkdir(parents=True)
        (triplet / part / "libx.so").touch()
    (triplet / "liby.so.1").touch()
    assert relocate.library_dirs(tmp_path) == [triplet, triplet / "pulseaudio"]


def test_a_wrapper_gives_libraries_and_data_and_passes_arguments(tmp_path: Path) -> None:
    tree, home = tmp_path / "tree", tmp_path / "a home"
    for part in ("usr/bin", "usr/lib/x86_64-linux-gnu", "usr/share/openvswitch"):
        (tree / "root" / part).mkdir(parents=True)
    (tree / "root/usr/lib/x86_64-linux-gnu/libx.so.1").touch()
    tool = tree / "root/usr/bin/tool"
    tool.write_text('#!/bin/sh\nprintf "%s|" "$LD_LIBRARY_PATH" "$OVS_PKGDATADIR" "$@"\n')
    tool.chmod(0o755)
    relocate.wrap(tree, home)
    tree.rename(home)
    done = subprocess.run(
        [home / "wrap/tool", "one word", "$two"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    libraries = home / "root/usr/lib/x86_64-linux-gnu"
    schema = home / "root/usr/share/openvswitch"
    assert done.stdout == f"{libraries}|{schema}|one word|$two|"
