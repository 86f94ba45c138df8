"""Whose transfer it is, from what Pegasus wrote into the submit directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hooks_world import FakeBroker, make_submit_dir, move

from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import Effects
from network_provisioner.client.patience import Budget
from pegasus_hooks.prepost import prejob
from pegasus_hooks.prepost.prejob import TransferIdentity, identity_of

DUMP = {"user": "ada", "app": "none", "dax_label": "soykb", "vogroup": "pegasus"}


@pytest.mark.parametrize(
    ("line", "project"),
    [
        ('+ProjectName = "SoyKB"', "SoyKB"),
        ('MY.ProjectName = "SoyKB"', "SoyKB"),
        ("accounting_group=group_cms.prod ", "group_cms.prod"),
        ('+projectname = "first"\naccounting_group = last', "last"),
        ('+Other = "x"\naccounting_group_user = eve', "fallback"),
        ("+ProjectName =", "fallback"),
    ],
)
def test_the_project_is_the_submit_files(line: str, project: str) -> None:
    text = f"universe = local\n{line}\nqueue\n"
    assert identity_of(DUMP, text, "fallback").project == project


def test_without_a_submit_file_the_rest_is_known() -> None:
    found = identity_of(DUMP, "", None)
    assert found == TransferIdentity(user="ada", experiment="soykb", application="soykb")


def test_an_app_is_the_experiment() -> None:
    found = identity_of({**DUMP, "app": "resequencing"}, "", None)
    assert (found.experiment, found.application) == ("resequencing", "soykb")


def test_names_that_the_broker_would_not_take_are_cut() -> None:
    project = identity_of(DUMP, f'+ProjectName = "a\x07b\ufffd{"c" * 500}"\n', None).project
    assert project.isprintable() and project.startswith("ab") and len(project) == 200


def test_every_request_says_whose_it_is(tmp_path: Path) -> None:
    job = "stage_in_local_mu_0_0"
    where = make_submit_dir(tmp_path / "run", {job: [move("f", "a", "mu", 10**9)]})
    with (where / "braindump.yml").open("a") as dump:
        dump.write('dax_label: "soykb"\napp: "none"\n')
    (where / "00/00" / f"{job}.sub").write_text('+ProjectName = "SoyKB"\nqueue\n')
    broker = FakeBroker()
    config = HookConfig("http://127.0.0.1:1", template="soykb")
    prejob.run(where, job, 0, config, Effects(broker, Budget(60.0)))
    asked = broker.asked[0]
    assert (asked.user, asked.project, asked.experiment) == ("u", "SoyKB", "soykb")
    assert asked.application == "soykb"
