"""The hooks as a part of an installation, beside the site selector and without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from generated import shared_fixtures
from hypothesis import given, settings
from hypothesis import strategies as st
from install_world import PYTHON, FakePegasus, hooks, make_pegasus, part

from network_provisioner.base.errors import InputError
from network_provisioner.client.hookconfig import HookConfig
from pegasus_hooks import plugin
from pegasus_hooks.install.edits import carry_out
from pegasus_hooks.install.home import InstallTarget, place_for_all, place_for_user
from pegasus_hooks.install.installing import (
    changes_to_install,
    changes_to_undo,
    needing,
    own_choice,
    own_post,
    queued_dags,
    running_dags,
)
from pegasus_hooks.install.parts import HOOKS, SELECTOR, InstallPart, callout_part, hooks_part
from site_selector.catalogs import properties

OWN = b"# mine\npegasus.metrics.app = none\n"


@pytest.fixture
def pegasus(tmp_path: Path) -> FakePegasus:
    return make_pegasus(tmp_path / "p", OWN)


@pytest.fixture
def place(pegasus: FakePegasus) -> InstallTarget:
    return place_for_all(pegasus.home)


def install(place: InstallTarget, *parts: InstallPart, keep: tuple[str, ...] = ()) -> None:
    carry_out(changes_to_install(place, parts, keep=keep), place.own)


def undo(place: InstallTarget, *keep: str) -> None:
    carry_out(changes_to_undo(place, keep=keep), place.own)


def said(file: Path) -> dict[str, str]:
    return properties.parse(file.read_text())


def test_settings_name_scripts_that_are_there(pegasus: FakePegasus, place: InstallTarget) -> None:
    before = pegasus.tree()
    install(place, part(), hooks(place))
    contents = said(pegasus.properties)
    pre, post, config = pegasus.hooks
    assert contents["dagman.pre"] == str(pre)
    assert contents["dagman.pre.arguments"] == "$JOB $RETRY $MAX_RETRIES"
    assert contents["dagman.post.path.pegasus-exitcode"] == f"{post} $RETRY"
    assert contents["dagman.maxpre"] == "20"
    assert contents[plugin.SELECTOR_PROPERTY] == plugin.SITE_SELECTOR_CLASS
    assert contents["pegasus.metrics.app"] == "none"
    assert pre.stat().st_mode & 0o777 == post.stat().st_mode & 0o777 == 0o755
    assert config.stat().st_mode & 0o777 == 0o644
    undo(place)
    assert pegasus.tree() == before


@pytest.mark.parametrize(("name", "other"), [(SELECTOR, HOOKS), (HOOKS, SELECTOR)])
def test_one_part_comes_and_goes_while_the_other_stays(
    pegasus: FakePegasus, place: InstallTarget, name: str, other: str
) -> None:
    before = pegasus.tree()
    parts = {SELECTOR: part(), HOOKS: hooks(place)}
    install(place, parts[other])
    alone = pegasus.tree()
    install(place, parts[name], keep=(other,))
    both = pegasus.tree()
    assert both.keys() > alone.keys()
    undo(place, other)
    assert pegasus.tree() == alone
    install(place, parts[name], keep=(other,))
    assert pegasus.tree() == both
    # Asked for without the other, that one is not there.
    install(place, parts[name])
    text = pegasus.properties.read_text()
    assert f"# {name}: " in text and f"# {other}: " not in text
    undo(place)
    assert pegasus.tree() == before


@pytest.mark.parametrize(
    "line",
    ["dagman.pre = /mine", "dagman.pre.arguments=$JOB", "dagman.post.path.pegasus-exitcode:/x"],
)
def test_the_users_own_hooks_are_kept_and_named(
    pegasus: FakePegasus, place: InstallTarget, line: str
) -> None:
    pegasus.properties.write_text(f"a=b\n{line}\n")
    before = pegasus.tree()
    with pytest.raises(InputError, match=r":2: found dagman.*your own.*--only selector$"):
        install(place, part(), hooks(place))
    assert pegasus.tree() == before
    install(place, part())
    assert f"{line}\n" in pegasus.properties.read_text()


def test_what_is_only_wished_gives_way(pegasus: FakePegasus, place: InstallTarget) -> None:
    pegasus.properties.write_text("dagman.maxpre = 3\n")
    install(place, hooks(place))
    assert said(pegasus.properties)["dagman.maxpre"] == "3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b\ndagman.post = mine\n", "2: found dagman.post = mine"),
        ("dagman.post=pegasus-exitcode\n", None),
        ("dagman.post.path.mine=/x\n", None),
        ("", None),
    ],
)
def test_a_post_of_the_users_own_is_seen(tmp_path: Path, text: str, expected: str | None) -> None:
    file = tmp_path / "x.properties"
    file.write_text(text)
    assert own_post(file) == (expected and f"{file}:{expected}")
    assert own_post(tmp_path / "absent") is None


def test_a_file_of_our_name_that_is_not_ours_is_left_alone(
    pegasus: FakePegasus, place: InstallTarget
) -> None:
    pre, _, config = pegasus.hooks
    pre.parent.mkdir()
    for file, content in ((pre, "#!/bin/sh\nsomebody's\n"), (config, "[1]")):
        file.write_text(content)
        with pytest.raises(InputError, match=f"{file.name}: found a file that is not ADON's"):
            install(place, hooks(place))
        undo(place)
        assert file.read_text() == content
        file.unlink()


def test_of_one_user_the_selector_goes_to_the_shell_and_the_hooks_to_properties(
    tmp_path: Path,
) -> None:
    place = place_for_user(tmp_path, "/bin/bash", False)
    (tmp_path / ".pegasusrc").write_text("a = b\n")
    install(place, part(), hooks(place))
    assert "dagman" not in (tmp_path / ".bashrc").read_text()
    rc = said(tmp_path / ".pegasusrc")
    assert rc["dagman.pre"] == str(tmp_path / ".local/share/adon/adon-pre")
    assert (rc["a"], plugin.SELECTOR_PROPERTY in rc) == ("b", False)
    # The callout needs no shell: both parts in one file.
    callout = place_for_user(tmp_path, "", True)
    wanted = [callout_part("/usr/bin/python3", None, None), hooks(place)]
    carry_out(changes_to_install(callout, wanted, [place]), callout.own)
    assert not (tmp_path / ".bashrc").exists()
    rc = said(tmp_path / ".pegasusrc")
    assert rc[plugin.SELECTOR_PROPERTY] == "NonJavaCallout" and "dagman.pre" in rc
    carry_out(changes_to_install(place, [part(), hooks(place)], [callout]), place.own)
    assert plugin.SELECTOR_PROPERTY not in said(tmp_path / ".pegasusrc")
    carry_out(changes_to_undo(place, [callout]), place.own)
    assert (tmp_path / ".pegasusrc").read_text() == "a = b\n"
    assert not (tmp_path / ".bashrc").exists() and not place.programs.exists()


def test_a_user_with_hooks_of_their_own_is_told(tmp_path: Path) -> None:
    rc = tmp_path / ".pegasusrc"
    rc.write_text("dagman.pre = /mine\n")
    place = place_for_user(tmp_path, "/bin/zsh", False)
    with pytest.raises(InputError, match=r"\.pegasusrc:1: found dagman.pre = /mine"):
        changes_to_install(place, [hooks(place)])
    assert own_choice(rc, [hooks(place)]) == f"{rc}:1: found dagman.pre = /mine"
    assert own_choice(rc, [part()]) is None


def test_scripts_that_dagman_would_split_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"PRE script: found .*without blanks"):
        hooks_part(tmp_path / "a b", PYTHON, Path("/x"), HookConfig("http://b"))


@settings(shared_fixtures, max_examples=20)
@given(
    steps=st.lists(
        st.tuples(st.booleans(), st.sampled_from([(SELECTOR,), (HOOKS,), (SELECTOR, HOOKS)])),
        max_size=6,
    ),
    own=st.sampled_from([None, b"", OWN, b"x"]),
)
def test_whatever_was_done_undo_leaves_no_trace(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[bool, tuple[str, ...]]],
    own: bytes | None,
) -> None:
    pegasus = make_pegasus(tmp_path_factory.mktemp("undo") / "p", own)
    place = place_for_all(pegasus.home)
    before = pegasus.tree()
    parts = {SELECTOR: part(), HOOKS: hooks(place)}
    there: set[str] = set()
    for comes, names in steps:
        keep = tuple(set(parts) - set(names))
        if comes:
            install(place, *(parts[name] for name in names), keep=keep)
            there |= set(names)
        else:
            undo(place, *keep)
            there -= set(names)
        text = pegasus.properties.read_text() if pegasus.properties.exists() else ""
        assert {name for name in parts if f"# {name}: " in text} == there
        assert pegasus.jar.exists() == (SELECTOR in there)
        assert all(file.exists() == (HOOKS in there) for file in pegasus.hooks)
    undo(place)
    assert pegasus.tree() == before


def dagman(proc: Path, number: int, cwd: Path, option: str = "-Dag") -> None:
    process = proc / str(number)
    process.mkdir(parents=True)
    (process / "cmdline").write_bytes(f"condor_scheduniv_exec\0-f\0{option}\0w\0".encode())
    (process / "cwd").symlink_to(cwd)


def test_dagman_is_known_by_its_arguments(tmp_path: Path) -> None:
    dagman(tmp_path / "proc", 1, tmp_path / "run1")
    dagman(tmp_path / "proc", 2, tmp_path / "run2", "-other")
    (tmp_path / "proc" / "3").mkdir()
    assert list(running_dags(tmp_path / "proc")) == [tmp_path / "run1"]


def submitted(
    folder: Path, pre: Path | str, selector: str = "", inner: bool = False,
    planner: object = "/other/bin/pegasus-plan",
) -> Path:  # fmt: skip
    folder.mkdir()
    (folder / "braindump.yml").write_text(f'wf_uuid: "x"\nplanner: "{planner}"\n')
    own = "SCRIPT PRE pegasus-plan_b 00/00/pegasus-plan_b.pre.sh  --conf x\n" if inner else ""
    (folder / "w-0.dag").write_text(f"JOB a a.sub\nSCRIPT PRE a {pre} $JOB\n{own}")
    (folder / "pegasus.17.properties").write_text(f"pegasus.selector.site={selector}\n")
    return folder


def test_workflows_that_run_keep_what_they_need(
    pegasus: FakePegasus, place: InstallTarget, tmp_path: Path
) -> None:
    before, ours = pegasus.tree(), plugin.SITE_SELECTOR_CLASS
    install(place, part(), hooks(place))
    runs = [
        submitted(tmp_path / "1", place.programs / "adon-pre", ours),
        submitted(tmp_path / "2", "/other/adon-pre", "Random", inner=True),
        submitted(tmp_path / "3", "/other/adon-pre", ours, inner=True),
        submitted(tmp_path / "4", "/other/pre", ours, inner=True, planner=pegasus.home.planner),
        tmp_path / "absent",
    ]
    needed = needing(place, [lambda: runs[:2], lambda: runs[1:]])
    assert needed == {HOOKS: [runs[0]], SELECTOR: [runs[3]]}
    for in_use in ({HOOKS}, {SELECTOR}, {HOOKS, SELECTOR}):
        install(place, part(), hooks(place))
        carry_out(changes_to_undo(place, in_use=in_use), place.own)
        assert not pegasus.properties.read_bytes().startswith(b"# >>>")
        assert all(file.exists() == (HOOKS in in_use) for file in pegasus.hooks)
        assert pegasus.jar.exists() == (SELECTOR in in_use)
    undo(place)
    assert pegasus.tree() == before


def test_another_selector_leaves_the_jar_to_those_who_need_it(
    pegasus: FakePegasus, place: InstallTarget
) -> None:
    install(place, part())
    callout = callout_part("/usr/bin/python3", None, None)
    carry_out(changes_to_install(place, [callout], in_use={SELECTOR}), place.own)
    assert pegasus.jar.exists()
    carry_out(changes_to_install(place, [callout]), place.own)
    assert not pegasus.jar.exists()


@pytest.mark.parametrize("how", ["exit 0", "exit 1", "absent"])
def test_the_queue_is_asked_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how != "absent":
        program = tmp_path / "condor_q"
        program.write_text(f"#!/bin/sh\necho /run1; echo undefined; echo /run2\n{how}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    dags = list(queued_dags())
    assert dags == ([] if how == "absent" else [Path("/run1"), Path("/run2")])
