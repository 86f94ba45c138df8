"""``adon policy``: against a real broker over HTTP, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_rig import serving
from broker_rig import Clock, demo_network
from cli_world import NOBODY, adon, refusal
from policy_world import LISTING_1, NOW, ended

from network_provisioner.api import create_app
from network_provisioner.api.app import Registries
from network_provisioner.base.model import KeptPromise
from network_provisioner.broker import Broker
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.policies.registry import PolicyRegistry
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict

CMS = ("policy", "start", "cms first", "--type", "project", "--specs", "cms", "ligo")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    """That of a broker on loopback whose address is in ADON_BROKER; its clock stands at NOW."""
    topology, store, clock = demo_network(), SqliteStore(tmp_path / "state.sqlite"), Clock(NOW)
    policies = PolicyRegistry(topology, store, clock)
    broker = Broker(
        topology,
        templates_from_dict({}),
        SimulatedController(topology),
        store,
        clock=clock,
        policies=policies,
    )
    broker.start()
    nothing: Any = None
    app = create_app(broker, registries=Registries(policies, nothing, store))
    with serving(app) as port:
        monkeypatch.setenv("ADON_BROKER", f"http://127.0.0.1:{port}")
        yield store
    broker.stop()


def said(*words: str) -> str:
    """What a command that succeeds prints."""
    ran = adon(*words)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def as_json(*words: str) -> Any:
    return json.loads(said(*words, "--json"))


@pytest.mark.usefixtures("store")
class TestPolicies:
    def test_start_show_list_stop(self) -> None:
        text = said(*CMS, "--strategy", "10-3", "--end", "2026-11-21T15:00:00Z")
        assert "running  cms first  project  10-3      cms    ligo" in text
        assert "2026-11-21T14:00:00Z  2026-11-21T15:00:00Z  cms-first-" in text
        made = as_json("policy", "show", "cms first")
        assert made == as_json("policy", "show", made["id"])
        assert as_json("policy", "list") == [made]
        assert "stopped" in said("policy", "stop", "cms first")
        assert said("policy", "list") == "no policy is running or scheduled\n"
        assert "stopped" in said("policy", "list", "--all")
        said("policy", "delete", made["id"])
        assert said("policy", "list", "--all") == "no policies\n"

    def test_listing_1_from_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "policy.json"
        file.write_text(json.dumps(LISTING_1))
        assert as_json("policy", "start", "--file", str(file))["strategy"] == "7-3"
        words = ("policy", "start", "other", "--file", str(file), "--for", "30 min")
        changed = as_json(*words, "--strategy", "computed")
        assert (changed["name"], changed["strategy"]) == ("other", "computed")
        assert changed["time"] == ["2026-11-21T14:00:00Z", "2026-11-21T14:30:00Z"]
        assert changed["specs"] == LISTING_1["specs"]

    def test_modify(self) -> None:
        said(*CMS, "--strategy", "7-3")
        words = ("policy", "modify", "cms first", "--strategy", "computed", "--parts", "1", "4")
        after = as_json(*words, "--guarantees", "50 Mb/s", "10 %", "--link", "s1", "s2")
        assert (after["strategy"], after["parts"]) == ("computed", [1, 4])
        assert after["guarantees"] == [{"share": 0, "bps": 50e6}, {"share": 0.1, "bps": 0}]
        text = said("policy", "show", "cms first")
        assert "governs s1 > s2, s2 > s1" in text
        assert "parts 1 : 4, keeps 50 Mb/s and 10 % of a link" in text

    def test_which_one_rests(self) -> None:
        said(*CMS, "--strategy", "7-3")
        said("policy", "start", "ada", "--type", "user", "--specs", "ada", "*", "--strategy", "7-3")
        text = said("policy", "show", "cms first")
        assert (
            "has no effect on r1 > s1, r1 > s2, s1 > r1, s1 > s2, s2 > r1, s2 > s1 while ada-"
            in text
        )


REFUSED = [
    (("policy", "start", "--type", "user"), "found no name, expected NAME or --file"),
    (("policy", "start", "x"), "has no 'type', expected it to start one"),
    ((*CMS, "--strategy", "8-2"), "strategy: found '8-2', expected one of"),
    ((*CMS, "--strategy", "7-3", "--end", "1"), "its end 1970-01-01T00:00:01Z is past"),
    ((*CMS, "--strategy", "7-3", "--end", "soon"), "is 'soon', expected ISO 8601"),
    ((*CMS, "--strategy", "7-3", "--for", "1 q"), "--for: found '1 q'"),
    ((*CMS, "--strategy", "7-3", "--link", "s1", "mars"), "no link between 's1' and 'mars'"),
    ((*CMS, "--strategy", "7-3", "--parts", "1", "2"), "expected none with the strategy '7-3'"),
    (("policy", "modify", "x"), "found nothing to change"),
    (("policy", "modify", "x", "--strategy", "7-3"), "'x' is unknown"),
    (("policy", "stop", "x"), "unknown policy 'x'"),
    (("policy", "show", "x"), "that there are: 'adon policy list --all' has all"),
    (("policy", "usage", "--csv", "--json"), "argument --json: not allowed with argument --csv"),
    (("policy", "usage", "--since", "yesterday"), "expected ISO 8601"),
    (("policy", "usage", "--start", "+2 h"), "unrecognized arguments: --start"),  # did nothing
    (("policy", "usage", "--since", "7 q"), "--since is '7 q'"),
]


@pytest.mark.usefixtures("store")
def test_refusals_are_one_line() -> None:
    for words, line in REFUSED:
        assert line in refusal(*words)
    assert as_json("policy", "list", "--all") == []


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"', "[" * 100_000])
def test_files_that_are_no_policy(tmp_path: Path, text: str) -> None:
    file = tmp_path / "policy.json"
    file.write_text(text)
    line = refusal("policy", "start", "--file", str(file), "--broker", f"http://{NOBODY}")
    assert str(file) in line
    assert "expected a" in line


def test_a_file_that_is_not_there() -> None:
    line = refusal("policy", "start", "--file", "no/such.json")
    assert "no/such.json: No such file or directory, expected a policy as JSON" in line


class TestUsage:
    def test_table_csv_and_json(self, store: SqliteStore) -> None:
        store.put(ended("a", project="cms", bytes=2 * 10**9, byte_seconds=3e9))
        kept = KeptPromise("kept", kept_s=6.0, less_s=3.0, broken_s=1.0).as_dict()
        store.put(ended("b", project="ligo", bytes=10**9, byte_seconds=1e9, kept=kept))
        store.put(ended("c", project="cms", bytes=1, released_at=NOW - 86400))
        rows = said("policy", "usage", "--by", "project").splitlines()
        assert rows[0].split() == [
            "project",
            "transits",
            "bytes",
            "byte-seconds",
            "held",
            "promises",
            "kept",
        ]
        assert rows[1].split() == ["cms", "2", "2", "GB", "3", "GB", "10", "s", "-"]
        assert rows[2].split()[-1] == "90.0%"
        text = said("policy", "usage", "--by", "project", "--since", "2026-11-21", "--csv")
        assert text == (
            "name,transits,bytes,byte_seconds,seconds,judged_s,broken_s\n"
            "cms,1,2000000000,3000000000.0,10.0,0.0,0.0\n"
            "ligo,1,1000000000,1000000000.0,10.0,10.0,1.0\n"
        )
        (only,) = as_json("policy", "usage", "--by", "user", "--until", f"{NOW - 3600:.0f}")
        assert only == {
            "name": "", "transits": 1, "bytes": 1, "byte_seconds": 0, "seconds": 0,
            "judged_s": 0, "broken_s": 0,
        }  # fmt: skip

    def test_nothing(self, store: SqliteStore) -> None:
        assert store.active() == []
        words = ("policy", "usage", "--since", "7 d")
        assert said(*words) == "no transfer has ended in that time\n"
