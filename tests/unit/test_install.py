"""Installations into a Pegasus: whole or not at all, and back again."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from generated import shared_fixtures
from hypothesis import given, settings
from hypothesis import strategies as st
from install_world import PYTHON, FakePegasus, hooks, jar, make_pegasus, part

from adon.cli.install_ask import blocking_path
from network_provisioner.base.errors import InputError
from network_provisioner.client.hookconfig import HookConfig
from pegasus_hooks import plugin
from pegasus_hooks.install.edits import FileEdit, carry_out, installation_lock
from pegasus_hooks.install.home import (
    InstallTarget,
    home_at,
    home_on_path,
    place_for_all,
    place_for_user,
)
from pegasus_hooks.install.installing import (
    changes_to_install,
    changes_to_undo,
    environment,
)
from pegasus_hooks.install.parts import InstallPart, callout_part, whole_jar
from site_selector.catalogs import properties

OWN = b"# mine\npegasus.metrics.app = none\nlast.without.newline = \\"
_KILLED = 9
_EFFECTS = {
    "open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.chown", "os.setxattr"
}  # fmt: skip


@pytest.fixture
def pegasus(tmp_path: Path) -> FakePegasus:
    return make_pegasus(tmp_path / "a pegasus", OWN)


def install(place: InstallTarget, *parts: InstallPart) -> None:
    carry_out(changes_to_install(place, parts), place.own)


def undo(place: InstallTarget) -> None:
    carry_out(changes_to_undo(place), place.own)


def needed(edits: list[FileEdit]) -> list[Path]:
    return [change.path for change in edits if change.needed]


def test_settings_and_program_come_and_go(pegasus: FakePegasus) -> None:
    before, place = pegasus.tree(), place_for_all(pegasus.home)
    install(place, part(config="/etc/adon.yml"))
    assert pegasus.jar.read_bytes() == jar()
    assert pegasus.properties.read_bytes().endswith(OWN)
    said = properties.parse(pegasus.properties.read_text())
    assert said[plugin.SELECTOR_PROPERTY] == plugin.SITE_SELECTOR_CLASS
    assert said[plugin.COMMAND_PROPERTY] == f'"{PYTHON}" -I -m adon.planner_request'
    assert said[plugin.CONFIG_PROPERTY] == "/etc/adon.yml"
    assert said["pegasus.metrics.app"] == "none"
    undo(place)
    assert pegasus.tree() == before


def test_another_version_replaces_what_is_there(pegasus: FakePegasus) -> None:
    before, place = pegasus.tree(), place_for_all(pegasus.home)
    install(place, part("one", config="/old.yml"))
    install(place, part("two"))
    assert pegasus.jar.read_bytes() == jar("two")
    assert b"old.yml" not in pegasus.properties.read_bytes()
    install(place, callout_part("/usr/bin/python3", None, 12))
    assert not pegasus.jar.exists()
    assert b"org.adon" not in pegasus.properties.read_bytes()
    undo(place)
    assert pegasus.tree() == before


def test_a_missing_folder_for_settings_comes_and_goes(tmp_path: Path) -> None:
    pegasus = make_pegasus(tmp_path / "p")
    (pegasus.root / "etc").rmdir()
    before, place = pegasus.tree(), place_for_all(pegasus.home)
    install(place, part())
    assert pegasus.properties.exists()
    undo(place)
    assert pegasus.tree() == before


def test_mode_stays_and_a_link_stays_a_link(pegasus: FakePegasus, tmp_path: Path) -> None:
    real = tmp_path / "real.properties"
    pegasus.properties.rename(real)
    real.chmod(0o640)
    pegasus.properties.symlink_to(real)
    place = place_for_all(pegasus.home)
    install(place, part())
    assert pegasus.properties.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert b"org.adon" in real.read_bytes()
    undo(place)
    assert pegasus.properties.is_symlink()
    assert real.read_bytes() == OWN


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_the_owner_stays(pegasus: FakePegasus) -> None:
    os.chown(pegasus.properties, 65534, 65534)
    place = place_for_all(pegasus.home)
    install(place, part())
    stat = pegasus.properties.stat()
    assert (stat.st_uid, stat.st_gid) == (65534, 65534)


@pytest.mark.parametrize(
    "line", ["pegasus.selector.site = Random", "a=b\npegasus.selector.site:Heft"]
)
def test_the_users_own_choice_is_kept_and_named(pegasus: FakePegasus, line: str) -> None:
    pegasus.properties.write_text(f"# first\n{line}\n")
    number = 2 + line.count("\n")
    before = pegasus.tree()
    with pytest.raises(InputError, match=rf":{number}: found pegasus.selector.site = .*your own"):
        changes_to_install(place_for_all(pegasus.home), [part()])
    assert pegasus.tree() == before


def test_line_numbers_are_right_below_an_installed_block(pegasus: FakePegasus) -> None:
    place = place_for_all(pegasus.home)
    pegasus.properties.write_bytes(b"a=b\n")
    install(place, part())
    with pegasus.properties.open("a") as stream:
        stream.write("pegasus.selector.site = Group\n")
    number = pegasus.properties.read_text().count("\n")
    with pytest.raises(InputError, match=rf"properties:{number}: found .* = Group"):
        changes_to_install(place, [part("two")])


def test_a_file_of_our_name_that_is_not_ours_is_left_alone(pegasus: FakePegasus) -> None:
    pegasus.jar.write_bytes(b"somebody's")
    with pytest.raises(InputError, match=r"adon-pegasus.jar: found a file that is not ADON's"):
        changes_to_install(place_for_all(pegasus.home), [part()])
    assert not needed(changes_to_undo(place_for_all(pegasus.home)))


@pytest.mark.parametrize("left", [b"", b"PK\x03\x04 and no more", None])
def test_what_is_left_of_our_jar_is_replaced_and_removed(
    pegasus: FakePegasus, left: bytes | None
) -> None:
    place = place_for_all(pegasus.home)
    before = pegasus.tree()
    for again in (install, undo):
        install(place, part())
        pegasus.jar.unlink()
        if left is not None:
            pegasus.jar.write_bytes(left)
        assert not whole_jar(pegasus.jar)
        again(place, part()) if again is install else again(place)
        assert again is undo or whole_jar(pegasus.jar)
    assert pegasus.tree() == before


def test_an_umask_of_the_admins_keeps_nobody_out(tmp_path: Path) -> None:
    pegasus = make_pegasus(tmp_path / "p")
    place = place_for_all(pegasus.home)
    old = os.umask(0o077)
    try:
        install(place, part(), hooks(place))
    finally:
        os.umask(old)
    files = [pegasus.jar, pegasus.hooks[0], pegasus.hooks[0].parent, pegasus.properties]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o644, 0o755, 0o755, 0o644]


def test_settings_that_pegasus_cannot_read_are_one_clear_line(pegasus: FakePegasus) -> None:
    pegasus.properties.write_bytes(b"a=\\u12\n")
    with pytest.raises(InputError, match="four hexadecimal digits"):
        changes_to_install(place_for_all(pegasus.home), [part()])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: None, "no such folder"),
        (lambda p: p.write_text(""), "found no folder"),
        (lambda p: p.mkdir(), "found no bin/pegasus-plan"),
    ],
)
def test_what_is_no_pegasus_is_one_clear_line(tmp_path: Path, make, said: str) -> None:
    make(tmp_path / "p")
    with pytest.raises(InputError, match=said):
        home_at(tmp_path / "p")


def test_the_pegasus_on_path_is_found_through_links(
    pegasus: FakePegasus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pegasus-plan").symlink_to(pegasus.root / "bin/pegasus-plan")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert home_on_path().root == pegasus.root.resolve()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="expected --home"):
        home_on_path()


def test_a_packaged_pegasus_has_its_settings_in_etc() -> None:
    def packaged(path: Path) -> bool:
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "exists", packaged)
        assert home_at(Path("/usr")).etc == Path("/etc/pegasus")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_what_keeps_others_from_running_python_is_found(open_folder: Path) -> None:
    shut = open_folder / "shut"
    shut.mkdir(mode=0o755)
    (shut / "python").touch(0o755)
    link, package = open_folder / "python", open_folder / "package.py"
    link.symlink_to(shut / "python")
    package.touch(0o644)
    assert blocking_path(link, package) is None
    shut.chmod(0o700)
    assert blocking_path(link, package) == shut
    shut.chmod(0o755)
    package.chmod(0o600)
    assert blocking_path(link, package) == package


def as_nobody(edits: list[FileEdit]) -> str:
    """What is said where they are carried out without root's rights."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            carry_out(edits)
        except BaseException as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return said


def test_a_home_that_is_read_only_is_one_clear_line(open_folder: Path) -> None:
    pegasus = make_pegasus(open_folder / "p", OWN)
    for folder in (pegasus.jar.parent, pegasus.properties.parent):
        folder.chmod(0o555)
    before = pegasus.tree()
    said = as_nobody(changes_to_install(place_for_all(pegasus.home), [part()]))
    assert "no permission to write, expected a folder of yours" in said
    assert pegasus.tree() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_somebody_elses_settings_in_an_open_folder_are_left_alone(open_folder: Path) -> None:
    pegasus = make_pegasus(open_folder / "p", OWN)
    for folder in (pegasus.jar.parent, pegasus.properties.parent):
        folder.chmod(0o777)
    before = pegasus.tree()
    said = as_nobody(changes_to_install(place_for_all(pegasus.home), [part()]))
    assert "pegasus.properties: found it owned by user 0" in said
    assert pegasus.tree() == before


def test_links_that_go_round_are_one_clear_line(pegasus: FakePegasus) -> None:
    pegasus.properties.unlink()
    pegasus.properties.symlink_to(pegasus.properties)
    with pytest.raises(InputError, match=r"loop of symbolic links|no regular file|expected a file"):
        changes_to_install(place_for_all(pegasus.home), [part()])


def test_what_changed_meanwhile_is_not_overwritten(pegasus: FakePegasus) -> None:
    place = place_for_all(pegasus.home)
    wanted = changes_to_install(place, [part()])
    pegasus.properties.write_bytes(b"new=1\n")
    with pytest.raises(InputError, match="changed meanwhile"):
        carry_out(wanted, place.own)
    assert pegasus.properties.read_bytes() == b"new=1\n"
    assert not pegasus.jar.exists()


def test_one_installation_at_a_time(pegasus: FakePegasus) -> None:
    place = place_for_all(pegasus.home)
    with (
        installation_lock(place.lock),
        pytest.raises(InputError, match="another installation"),
        installation_lock(place.lock),
    ):
        pass


def killed_at(number: int, place: InstallTarget, wanted: list[FileEdit]) -> bool:
    """Carry the changes out in a process that ends at its ``number``-th effect on the disk; whether
    it came that far."""
    child = os.fork()
    if child == 0:
        count = 0

        def hook(event: str, _arguments: object) -> None:
            nonlocal count
            if event in _EFFECTS:
                count += 1
                if count == number:
                    os._exit(_KILLED)

        sys.addaudithook(hook)
        carry_out(wanted, place.own)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == _KILLED


@pytest.mark.long
@settings(shared_fixtures, max_examples=100)
@given(
    number=st.integers(1, 90),
    own=st.sampled_from([None, b"", b"a=b", OWN]),
    stage=st.sampled_from(["install", "upgrade", "undo"]),
)
def test_killed_at_any_moment_it_can_be_finished_or_undone(
    tmp_path_factory: pytest.TempPathFactory, number: int, own: bytes | None, stage: str
) -> None:
    pegasus = make_pegasus(tmp_path_factory.mktemp("kill") / "p", own)
    place = place_for_all(pegasus.home)
    before = pegasus.tree()
    new = [part("two"), hooks(place, HookConfig("http://other"))]
    if stage != "install":
        install(place, part("one", "/old.yml"), hooks(place))
    installed = pegasus.tree()
    wanted = changes_to_undo(place) if stage == "undo" else changes_to_install(place, new)
    killed_at(number, place, wanted)
    # Whatever Pegasus would read now is whole: as it was, or as it was meant.
    for change in wanted:
        content = change.path.read_bytes() if change.path.exists() else None
        assert content in (change.before, change.after)
    said = pegasus.properties.read_bytes() if pegasus.properties.exists() else b""
    assert b"org.adon" not in said or pegasus.jar.exists()
    assert b"dagman.pre" not in said or all(file.exists() for file in pegasus.hooks)
    if number % 2:
        install(place, *new)
        assert not needed(changes_to_install(place, new))
    undo(place)
    assert pegasus.tree() == before
    assert installed


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("stage", ["install", "undo"])
def test_killed_at_each_moment_in_turn_it_leaves_no_trace(
    tmp_path: Path, stage: str, every: int
) -> None:
    for number in range(1, 111, every):
        pegasus = make_pegasus(tmp_path / str(number), OWN)
        place = place_for_all(pegasus.home)
        before, parts = pegasus.tree(), [part(), hooks(place)]
        wanted = changes_to_install(place, parts)
        if stage == "undo":
            carry_out(wanted, place.own)
            wanted = changes_to_undo(place)
        killed = killed_at(number, place, wanted)
        undo(place)
        assert pegasus.tree() == before, number
        if not killed:
            break
    assert 20 < number < 100


def test_one_user_gets_both_halves_from_the_shell(tmp_path: Path) -> None:
    place = place_for_user(tmp_path, "/bin/bash", False)
    (tmp_path / ".bashrc").write_text("alias ll='ls -l'\n")
    install(place, part())
    text = (tmp_path / ".bashrc").read_text()
    assert "export _PEGASUS__SELECTOR__SITE=org.adon.pegasus.AdonSiteSelector\n" in text
    assert f'export CLASSPATH={place.jars}/adon-pegasus.jar"${{CLASSPATH:+:$CLASSPATH}}"' in text
    command = f". {tmp_path}/.bashrc; env"
    said = os.popen(f"env -i CLASSPATH=/other.jar sh -c '{command}'").read().splitlines()
    variables = dict(line.partition("=")[::2] for line in said)
    wished = environment(place, [part()])
    assert variables["CLASSPATH"] == f"{wished.pop('CLASSPATH')}:/other.jar"
    assert wished.items() <= variables.items()
    undo(place)
    assert (tmp_path / ".bashrc").read_text() == "alias ll='ls -l'\n"
    assert not place.jars.exists()


def test_the_callout_of_one_user_needs_properties_only(tmp_path: Path) -> None:
    place = place_for_user(tmp_path, "/bin/bash", True)
    install(place, callout_part("/usr/bin/python3", Path("/etc/adon.yml"), 12.5))
    said = properties.parse((tmp_path / ".pegasusrc").read_text())
    assert said["pegasus.selector.site"] == "NonJavaCallout"
    assert said["pegasus.selector.site.path"].startswith("/usr/bin/python3 -I -S /")
    assert said["pegasus.selector.site.env.ADON_CONFIG"] == "/etc/adon.yml"
    assert said["pegasus.selector.site.env.ADON_CALLOUT_TIMEOUT"] == "12.5"
    undo(place)
    assert not (tmp_path / ".pegasusrc").exists()


def test_a_callout_that_pegasus_would_split_is_refused() -> None:
    with pytest.raises(InputError, match="found white space"):
        callout_part("/opt/my python/python3", None, None)
