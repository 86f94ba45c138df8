"""Provisioning jobs in the text of a workflow: put in, taken out, put in again."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from provision_world import ancestors, graphs, text

from network_provisioner.base.errors import InputError
from pegasus_hooks.provisioning import succeed
from pegasus_hooks.provisioning.insertion import (
    ProvisionedWorkflow,
    ProvisioningOptions,
    program,
    provisioned_workflow,
    without_provisioning,
)
from pegasus_hooks.provisioning.step import (
    PROVISION,
    RELEASE,
    PathNeed,
    ProvisioningStep,
    from_arguments,
    to_arguments,
)
from site_selector.catalogs.documents import parse_document
from site_selector.catalogs.workflow import WHAT, parse_workflow

PROGRAM = ["/usr/bin/python3", "-I", "-S", "/x/job.py"]
FAN: dict[str, list[str]] = {"split": [], **{f"w{n}": ["split"] for n in range(4)}}
WISH = ProvisioningOptions(3, "/h.json", "/adon.yml", 60, ("mu",))


def put(before: str, options: ProvisioningOptions = WISH) -> ProvisionedWorkflow:
    return provisioned_workflow(parse_document(before, "w.yml", WHAT), None, options, PROGRAM)


def test_two_jobs_stand_around_the_wide_level() -> None:
    flow = parse_workflow(put(text(FAN)).text)
    assert flow.parents["before_level_1"] == ("split",)
    assert set(flow.children["before_level_1"]) == {f"w{n}" for n in range(4)}
    assert set(flow.parents["after_level_1"]) == {f"w{n}" for n in range(4)}
    assert flow.children["after_level_1"] == ()
    assert flow.jobs["before_level_1"].transformation == "adon::provision:1.0"
    assert flow.jobs["after_level_1"].site_hint == "local"


def test_the_jobs_are_told_what_to_do() -> None:
    document = yaml.safe_load(put(text(FAN, sizes={"split.out": 5})).text)
    words = next(j for j in document["jobs"] if j["id"] == "before_level_1")["arguments"]
    assert words[:3] == PROGRAM[1:]
    paths = (PathNeed("local", "mu", 5), PathNeed("mu", "local", None))
    assert from_arguments(words[3:]) == (
        PROVISION, ProvisioningStep(1, 4, 1, 0, 5, 60, (paths[0],), "/h.json", "/adon.yml"),
    )  # fmt: skip


def test_their_programs_run_on_the_submit_host_and_never_fail_the_workflow() -> None:
    document = yaml.safe_load(put(text(FAN)).text)
    for entry in document["transformationCatalog"]["transformations"]:
        assert entry["namespace"] == "adon"
        (site,) = entry["sites"]
        assert (site["name"], site["pfn"], site["type"]) == ("local", PROGRAM[0], "installed")
        assert entry["profiles"]["condor"] == {"universe": "local"}
        assert entry["profiles"]["dagman"] == {
            "POST": "user", "POST.PATH.user": PROGRAM[0],
            "POST.ARGUMENTS": f"-I -S {succeed.__file__}",
        }  # fmt: skip


def test_their_post_leaves_the_file_that_pegasus_sends_to_the_jobs_after_them(
    tmp_path: Path,
) -> None:
    assert succeed.main([str(tmp_path / "provision_before_level_1.out")]) == 0
    assert json.loads((tmp_path / "provision_before_level_1.meta").read_text()) == []
    assert succeed.main([str(tmp_path / "gone/x.out")]) == succeed.main([]) == 0


@settings(max_examples=20)
@given(graphs(), st.integers(2, 4), st.booleans())
def test_what_was_put_in_comes_out_without_a_trace(
    parents: dict[str, list[str]], min_width: int, edges: bool
) -> None:
    before = text(parents, edges=edges)
    after = put(before, ProvisioningOptions(min_width, pool="/adon.yml"))
    assert without_provisioning(after.text, "w.yml") == before
    assert (after.text == before) == (not after.steps)


@settings(max_examples=15)
@given(graphs(), st.integers(2, 4))
def test_twice_is_once(parents: dict[str, list[str]], min_width: int) -> None:
    options = ProvisioningOptions(min_width, pool="/adon.yml")
    once = put(text(parents), options).text
    assert put(once, options).text == once


@settings(max_examples=20)
@given(graphs(), st.integers(2, 4))
def test_the_jobs_that_were_there_wait_for_the_same_jobs_as_before(
    parents: dict[str, list[str]], min_width: int
) -> None:
    before, after = (
        ancestors(parents),
        ancestors(
            parse_workflow(
                put(text(parents), ProvisioningOptions(min_width, pool="/a")).text
            ).parents
        ),
    )
    for job, above in before.items():
        assert {a for a in after[job] if a in before} == above


FORMS: Mapping[str, str] = {
    "no dependencies": text(FAN, edges=False),
    "an empty list of dependencies": text(FAN, edges=False) + "jobDependencies: []\n",
    "comments": "# mine\n" + text(FAN).replace("- type: job", "# a job\n- type: job"),
    "a catalog of its own": "transformationCatalog:\n  transformations:\n    - namespace: t\n"
    "      name: run\n      version: '1.0'\n      sites:\n        - name: mu\n"
    "          pfn: /bin/true\n          type: installed\n" + text(FAN),
    "indented lists": text(FAN).replace("\n", "\n  ").replace("\n  jobs:", "\njobs:")
    .replace("\n  jobDep", "\njobDep").replace("\n  name: w", "\nname: w").rstrip(" "),
    "no line break at the end": text(FAN).rstrip("\n"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_all_else_stays_as_it_is_written(form: str) -> None:
    before = FORMS[form]
    after = put(before)
    kept = iter(after.text.splitlines())
    lines = [line for line in before.splitlines() if line != "jobDependencies: []"]
    assert all(line in kept for line in lines)  # in this order
    assert without_provisioning(after.text, "w.yml") == before
    assert parse_workflow(after.text).parents["before_level_1"] == ("split",)


def test_a_catalog_of_the_workflows_own_keeps_its_programs() -> None:
    document = yaml.safe_load(put(FORMS["a catalog of its own"]).text)
    names = [t["name"] for t in document["transformationCatalog"]["transformations"]]
    assert sorted(names) == [PROVISION, RELEASE, "run"]


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ('{"pegasus": "5.0.4", "name": "w", "jobs": []}', "no list of jobs"),
        (str(yaml.safe_dump(yaml.safe_load(text(FAN)), default_flow_style=True)), "block style"),
        (text({**FAN, "before_level_1": []}), "expected that name to be free"),
        (put(text(FAN)).text.replace("# <<< adon <<<\n", ""), "expected both or none"),
    ],
)
def test_what_cannot_be_changed_is_told(before: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        put(before)


def test_jobs_without_their_marks_are_not_taken_for_the_users() -> None:
    after = "".join(
        line for line in put(text(FAN)).text.splitlines(keepends=True) if "adon <<<" not in line
        and ">>> adon" not in line
    )  # fmt: skip
    with pytest.raises(InputError, match="not the marks around them"):
        without_provisioning(after, "w.yml")


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)
counts = st.integers(0, 10**15)


@given(
    st.builds(
        ProvisioningStep,
        level=counts, slots=counts, cores=counts, memory_mb=counts, bytes=counts, lease_s=counts,
        paths=st.lists(
            st.builds(PathNeed, words, words, st.none() | counts), max_size=4
        ).map(tuple),
        hooks=words | st.just(""), pool=words | st.just(""),
    ),
    st.sampled_from([PROVISION, RELEASE]),
)  # fmt: skip
def test_what_a_job_is_told_arrives_through_every_shell(step: ProvisioningStep, verb: str) -> None:
    arguments = to_arguments(verb, step)
    plain = set(string.ascii_letters + string.digits + "-_=.,:/%@+")
    assert all(word and set(word) <= plain for word in arguments)
    assert from_arguments(" ".join(arguments).split()) == (verb, step)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "found '', expected provision or release"),
        (["provision"], "found no --level"),
        (["provision", "--level=1", "--slots=many"], "--slots: found 'many', expected a whole"),
        (["provision", "--colour=red"], "found argument '--colour=red', expected --level"),
        (["release", "--level=1", "--slots=1", "--path=mu"], "--path: found 'mu', expected SOURCE"),
    ],
)
def test_other_arguments_are_told(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_arguments(arguments)


def test_the_program_is_there() -> None:
    python, *options, script = program()
    assert options == ["-I", "-S"]
    assert script.endswith("pegasus_hooks/provisioning/job.py")
    assert python.startswith("/")


def test_replicas_tell_sizes_and_places() -> None:
    from site_selector.catalogs.entries import replicas_of  # noqa: PLC0415

    entry: dict[str, Any] = {"lfn": "split.in", "pfns": [{"site": "tacc", "pfn": "file:///x"}]}
    catalog = {"pegasus": "5.0.4", "replicas": [{**entry, "metadata": {"size": 77}}]}
    replicas = replicas_of(parse_document(yaml.safe_dump(catalog), "rc.yml", "catalog"))
    flat: dict[str, list[str]] = {"split": [], "other": []}
    document = parse_document(text(flat, sizes={"other.in": 1}), "w.yml", WHAT)
    provisioning = provisioned_workflow(
        document, replicas, ProvisioningOptions(2, hooks="/h", execution=("mu",)), PROGRAM
    )
    ((_, step),) = provisioning.steps
    assert PathNeed("tacc", "mu", 77) in step.paths
