"""What a planner was asked is read from its command line and its properties."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus_hooks import callout_able
from pegasus_hooks.callout_planner import Asked, catalogs, read_command, read_properties

JAVA = ["/usr/bin/java", "-Xmx512m", "-Dpegasus.home.sysconfdir=/opt/p/etc"]
CLASS = "edu.isi.pegasus.planner.client.CPlanner"
SYSTEM = {"pegasus.home.sysconfdir": "/opt/p/etc"}


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["wf.yml"], Asked("wf.yml")),
        ([], Asked("workflow.yml")),
        (
            ["--conf", "a.p", "--sites", "mu,tacc", "--output-sites", "local", "-vvv", "wf.yml"],
            Asked("wf.yml", "a.p", ("mu", "tacc"), "local"),
        ),
        (
            ["--output-site=store,local", "--site=mu", "--dax=old.yml", "--conf=x=y"],
            Asked("old.yml", "x=y", ("mu",), "store"),
        ),
        (["-s", "mu, tacc", "-olocal", "-q", "-c", "cache", "wf.yml"],
         Asked("wf.yml", None, ("mu", "tacc"), "local")),
        # As DAGMan has a sub-workflow planned.
        (["--dir", "/s", "--relative-dir", "r", "--relative-submit-dir", "r/00", "--staging-site",
          "mu=mu,tacc=tacc", "--cache", "c", "--cleanup", "none", "--deferred", "/inner.yml"],
         Asked("/inner.yml")),
        (["--randomdir", "--force", "--", "--odd.yml"], Asked("--odd.yml")),
        (["--conf"], Asked("workflow.yml", None)),
    ],
)  # fmt: skip
def test_command_lines(words: list[str], asked: Asked) -> None:
    expected = Asked(asked.workflow, asked.conf, asked.sites, asked.output_site, SYSTEM)
    assert read_command([*JAVA, CLASS, *words]) == expected


def test_properties_on_the_command_line() -> None:
    found = read_command([*JAVA, "-Da.b=c=d", CLASS, "-D", "pegasus.x=1", "-Dpegasus.y=2", "w"])
    assert found.system == {**SYSTEM, "a.b": "c=d", "pegasus.x": "1", "pegasus.y": "2"}


def test_another_program_is_no_planner() -> None:
    with pytest.raises(ValueError, match=r"'bash -c x', expected a planner"):
        read_command(["bash", "-c", "x"])


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_command_line_is_read(words: list[str]) -> None:
    assert read_command([*JAVA, CLASS, *words]).workflow


def test_later_places_of_properties_win(tmp_path: Path) -> None:
    etc, home, here = (tmp_path / name for name in ("etc", "home", "here"))
    for folder in (etc, home, here):
        folder.mkdir()
    places = [
        etc / "pegasus.properties", home / ".pegasusrc", here / "pegasus.properties",
        here / "my.conf",
    ]  # fmt: skip
    for number, path in enumerate(places):
        settings = "".join(f"k{i} = {number}\n" for i in range(number, 6))
        path.write_text(f"{settings}mixed{number} = ${{k{number}}}-${{user.home}}\n")
    asked = Asked("w", "my.conf", system={"pegasus.home.sysconfdir": str(etc), "k5": "system"})
    environ = {"_PEGASUS__A__B": "env", "_PEGASUS": "x", "PATH": "y"}
    found = read_properties(asked, here, str(home), environ)
    assert [found[f"k{i}"] for i in range(6)] == ["0", "1", "2", "3", "3", "system"]
    # What was read before comes before what stands in the same file.
    assert found["mixed2"] == f"1-{home}"
    assert found["pegasus.a.b"] == "env"


def test_files_that_cannot_be_read_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"a=\\u1\n")
    assert read_properties(Asked("w", "bad"), tmp_path, "/no/such", {}) == {}


def test_catalogs_where_the_planner_finds_them(tmp_path: Path) -> None:
    workflow = tmp_path / "w.yml"
    workflow.write_text('name: x\n"siteCatalog":\n  sites: []\nnot siteCatalog: 1\n')
    for name in ("sites.yml", "replicas.yml"):
        (tmp_path / name).write_text("x")
    known = {"pegasus.catalog.transformation.file": "t/tc.yml"}
    assert catalogs(known, workflow, tmp_path) == {
        "replica": tmp_path / "replicas.yml", "transformation": tmp_path / "t/tc.yml",
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"pegasus.catalog.replica: found Regex, expected YAML"):
        catalogs({"pegasus.catalog.replica": "Regex"}, workflow, tmp_path)
    with pytest.raises(ValueError, match="No such file"):
        catalogs({}, tmp_path / "absent", tmp_path)


def test_where_programs_are_installed() -> None:
    def entry(name: str, *sites: tuple[str, str], **more: str) -> dict[str, object]:
        listed = [{"name": site, "type": kind} for site, kind in sites]
        return {"name": name, "sites": listed, **more}

    both = (("mu", "installed"), ("tacc", "installed"))
    document = {
        "transformations": [
            entry("a", *both, namespace="ns", version="1.0"),
            entry("b", *both[:1]),
            entry("staged", ("local", "stageable"), *both),
            {"name": "no sites"},
            "nonsense",
        ]
    }
    expected = [("ns::a:1.0", ["mu", "tacc"]), ("b", ["mu"])]
    assert list(callout_able.able(document)) == expected
    assert list(callout_able.able({"transformationCatalog": document})) == expected


@given(st.recursive(st.none() | st.text(max_size=3), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(["transformations", "sites", "name", "type"]), x), max_leaves=12))  # fmt: skip
def test_any_catalog_is_read_as_far_as_it_goes(document: object) -> None:
    assert all(isinstance(name, str) for name, _ in callout_able.able(document))
