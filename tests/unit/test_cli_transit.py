"""``adon transit`` and ``adon broker token``: what is asked, and what is shown of the answer."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_rig import application, bearer, keyring, serving, token_of
from broker_rig import Clock, Rig
from cli_world import adon, config_file, refusal
from made_transit import made_transit

from adon.cli import transit
from adon.cli.transit import _STATES, _packets, explanation
from adon.config.sections import TokenConfig
from network_provisioner.access import hash_of
from network_provisioner.base.instants import local_time
from network_provisioner.base.model import IoRecord, TransitState


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A broker with a key for each role; the engineer's token is in a file."""
    rig = Rig(tmp_path / "state.sqlite", clock=Clock(1_790_000_000.0))
    file = tmp_path / "token"
    file.write_text(token_of("engineer"))
    monkeypatch.setenv("ADON_TOKEN_FILE", str(file))
    with serving(application(rig, keyring(rig))) as port:
        monkeypatch.setenv("ADON_BROKER", f"http://127.0.0.1:{port}")
        yield rig


def ask(*words: str) -> dict[str, object]:
    """What a request with these words is answered."""
    ran = adon("transit", "request", "mu", "tacc", *words, "--json")
    assert ran.err == "", ran.err
    answer: dict[str, object] = json.loads(ran.out)
    return answer


def test_everything_a_request_can_say(rig: Rig) -> None:
    made = ask(
        "--id", "a", "--size", "1 GB", "--min", "20 Mb/s", "--max", "50 Mb/s", "--priority", "0",
        "--start", "1790000600", "--end", "2026-09-21T15:00:00Z", "--application", "soykb",
        "--user", "u", "--project", "p", "--experiment", "e", "--workflow", "w", "--job", "j",
        "--flow", "2811", "--flow", "src:50000-50063", "--flow", "udp/5000",
    )  # fmt: skip
    shown = {
        "id": "a", "state": "held", "size_bytes": 10**9, "requested_bps": 20e6, "max_bps": 50e6,
        "priority": 0, "start": 1790000600.0, "end": 1790002800.0, "application": "soykb",
        "user": "u", "project": "p", "experiment": "e", "workflow": "w", "job": "j",
        "flows": [
            {"protocol": "tcp", "dst_ports": [2811, 2811]},
            {"protocol": "tcp", "src_ports": [50000, 50063]},
            {"protocol": "udp", "dst_ports": [5000, 5000]},
        ],
    }  # fmt: skip
    assert {key: made[key] for key in shown} == shown
    text = adon("transit", "explain", "a").out
    assert f"from {local_time(1790000600.0)} to {local_time(1790002800.0)}" in text
    assert "packets: tcp to 2811, tcp from 50000-50063, udp to 5000" in text


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"ports_at": "seen"}, "as its tool opens connections: none has been reported yet"),
        ({"ports_at": "client", "ports": [20224, 20479]}, "none of its connections has been"),
        ({"ports_at": "src"}, "from ports that it is given when it begins"),
        ({}, "all that no other transit names, between 192.0.2.1 and 192.0.2.2"),
    ],
)
def test_how_packets_are_told_apart_is_explained(how: dict[str, Any], said: str) -> None:
    hosts = ["192.0.2.1", "192.0.2.2"]
    transit = made_transit("a", "mu", "tacc", TransitState.INSTALLED, hosts=hosts, **how)
    assert said in _packets(transit)


UNSAYABLE = [
    (["--min", "fast"], "--min: found 'fast', expected a number with a unit such as '200 Mb/s'"),
    (["--min", "0"], "--min: found '0', expected more than 0"),
    (["--size", "25 Gb"], "--size: found '25 Gb', expected bytes such as '1.5 GB'"),
    (["--flow", "x"], "--flow: found 'x', expected a port such as 2811"),
    (["--flow", "99999"], "--flow: dst_ports is 99999, expected a whole number"),
    (["--flow", "9-3"], "--flow: dst_ports is [9, 3]"),
    (["--flow", "icmp/1"], "--flow: protocol is 'icmp', expected tcp or udp"),
    (["--flow", "to:1"], "--flow: found 'to:1', expected a port"),
    (["--start", "soon"], "--start is 'soon', expected ISO 8601"),
    (["--start", "+soon"], "--start: found 'soon', expected a number with a unit"),
    (["--priority", "-1"], "argument --priority: found '-1', expected a whole number"),
    (["--lease", "0 s"], "--lease: found '0 s', expected more than 0"),
    (["--end", "2001-01-01"], "end "),
]


def test_what_a_request_cannot_say_is_one_line(rig: Rig) -> None:
    for words, line in UNSAYABLE:
        assert refusal("transit", "request", "mu", "tacc", *words).startswith(line)
    assert rig.broker.list() == []


def test_who_waits_is_told_for_what_and_until_when(rig: Rig) -> None:
    rig.ask("big", "mu", "tacc", template="soykb", min_bps=150e6, lease_s=100)
    rig.ask("l3", "mu", "iplant", min_bps=18e6, max_bps=18e6, lease_s=200)
    ran = adon(
        "transit", "request", "local", "tacc", "--id", "w", "--template", "soykb",
        "--min", "100 Mb/s",
    )  # fmt: skip
    assert ran.code == 1
    text = adon("transit", "explain", "w").out
    assert "queued" in text and "earliest known start: 2026-09-21 14:" in text
    (row,) = [line for line in text.splitlines() if line.startswith("  s1>s2")]
    assert row.split() == ["s1>s2", "12", "Mb/s", "big,", "l3"]


def test_renew_flows_and_release_say_what_became_of_it(rig: Rig) -> None:
    ask("--id", "a")
    assert adon("transit", "renew", "a", "2 h").code == 0
    assert rig.broker.get("a").grant.lease_until == rig.clock.now + 7200
    assert adon("transit", "flows", "a", "50000", "src:2811").code == 0
    assert [f.protocol for f in rig.broker.get("a").request.flows] == ["tcp", "tcp"]
    ran = adon(
        "transit", "release", "a", "--moved", "1 GB", "--took", "80 s", "--outcome", "success"
    )
    assert ran.code == 0 and rig.broker.get("a").usage.goodput_bps == 1e8
    assert adon("transit", "renew", "a", "2 h").code == 1
    assert "'a' is released" in refusal("transit", "flows", "a", "50000")
    assert refusal("transit", "renew", "a", "0 s") == "TIME: found '0 s', expected more than 0"


def test_a_transit_that_follows_a_disk_says_so(rig: Rig) -> None:
    knee = {"bps": 30e6, "low_bps": 29e6, "high_bps": 31e6, "cause": "I/O wait", "site": "tacc",
            "way": "write", "io_wait": 0.93, "at": 1.0, "asked_min_bps": 5e6,
            "asked_max_bps": 1e8}  # fmt: skip
    limited = made_transit("a", "mu", "tacc", TransitState.ACTIVE, max_bps=31e6, knee=knee)
    assert (
        "knee at 30 Mb/s (29 Mb/s to 31 Mb/s): the disk of tacc writes no more (I/O wait 93%); "
        "69 Mb/s of its ceiling released"
    ) in explanation(limited)
    remembered = replace(limited, io=IoRecord(asked_max_bps=1e8, remembered_bps=30e6))
    assert "began at 30 Mb/s, which disks were found to take; 69 Mb/s of" in explanation(remembered)


def test_rates_are_changed_while_it_runs(rig: Rig) -> None:
    ask("--id", "a")
    assert adon("transit", "change", "a", "--min", "8 Mb/s", "--max", "20 Mb/s").code == 0
    assert (rig.broker.get("a").request.min_bps, rig.broker.get("a").request.max_bps) == (8e6, 20e6)
    assert "8 Mb/s to 20 Mb/s, before 5 Mb/s to 200 Mb/s" in adon("transit", "explain", "a").out
    assert "expected at most 180 Mb/s" in refusal("transit", "change", "a", "--min", "190 Mb/s",
                                                  "--max", "200 Mb/s")  # fmt: skip
    assert (
        refusal("transit", "change", "a") == "found neither --min nor --max, expected one of them"
    )


def test_lists_by_state_and_by_whose(rig: Rig) -> None:
    for name, project in (("a", "p"), ("b", "q"), ("c", "p")):
        rig.ask(name, "mu", "tacc", project=project, user="u", job=f"job-{name}")
    rig.broker.release("c")

    def ids(*words: str) -> list[str]:
        return [t["id"] for t in json.loads(adon("transit", "list", *words, "--json").out)]

    assert ids() == ["b", "a"]
    assert ids("--project", "p") == ["a"]
    assert ids("--project", "p", "--all") == ["c", "a"]
    assert ids("--state", "released") == ["c"]
    assert ids("--all", "--limit", "1") == ["c"]
    assert ids("--user", "nobody") == []
    assert adon("transit", "list", "--state", "failed").out == "no transits\n"
    assert adon("transit", "list").out.splitlines()[2].split()[-3:] == ["u/p", "job-a", "a"]
    ended = local_time(rig.broker.get("c").grant.released_at)
    assert "ended" not in adon("transit", "list").out
    head, c, b, _ = adon("transit", "list", "--all").out.splitlines()
    assert c.index(ended) == head.index("ended") and b[head.index("ended")] == "-"
    assert tuple(TransitState) == _STATES


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_list_is_the_same_in_pages(rig: Rig, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for name in "abcde":
        rig.ask(name, "mu", "tacc", user="u" if name in "ace" else "v")
    rig.broker.release("b")
    forms = ((), ("--json",), ("--csv",), ("--json", "--columns", "id,state"), ("--csv", "--all"))
    lists = [(*form, *which) for form in forms for which in ((), ("--user", "u"), ("--limit", "3"))]
    whole = [adon("transit", "list", *words) for words in lists]
    monkeypatch.setattr(transit, "_PAGE", size)
    assert [adon("transit", "list", *words) for words in lists] == whole
    assert json.loads(adon("transit", "list", "--json", "--user", "nobody").out) == []


def test_every_reason_stands_below_the_list(rig: Rig) -> None:
    rig.ask("well", "mu", "tacc")
    rig.broker.release("well", 1000, 1.0, "success")
    rig.ask("told", "mu", "tacc", best_effort="the submit directory cannot be written")
    rig.ask("late", "mu", "tacc", lease_s=5)
    rig.let_pass(6)
    rig.ask("gone", "mu", "tacc")
    rig.broker.release("gone", outcome="held")
    gone, late, unwritable = adon("transit", "list", "--all").out.splitlines()[-3:]
    assert unwritable == "told: the submit directory cannot be written"
    assert late.startswith("late: ") and late.endswith("; its lease ended")
    assert gone.endswith("; the transfer ended with 'held'")


def test_without_a_token_or_with_one_of_the_wrong_role(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ADON_TOKEN_FILE")
    assert "the request has no token" in refusal("transit", "list")
    monkeypatch.setenv("ADON_TOKEN", token_of("measurement"))
    assert "has role measurement, expected" in refusal("transit", "request", "mu", "tacc")
    monkeypatch.setenv("ADON_TOKEN_FILE", str(tmp_path / "nowhere"))
    assert "nowhere: cannot be read" in refusal("transit", "list")
    assert bearer("measurement")["Authorization"].endswith(token_of("measurement"))


# -- tokens ----------------------------------------------------------------------------------


def test_a_new_token_is_shown_once_with_its_entry() -> None:
    ran = adon("broker", "token", "new", "--owner", "ada", "--role", "researcher")
    assert (ran.code, ran.err) == (0, "")
    token = ran.out.splitlines()[0].removeprefix("token, shown this once: ")
    (entry,) = yaml.safe_load(ran.out.partition("for adon.yml:")[2])["security"]["tokens"]
    assert entry == {"name": "ada", "role": "researcher", "sha256": hash_of(token)}
    assert TokenConfig.model_validate(entry).name == "ada"


def test_a_token_goes_into_a_file_of_its_owners(tmp_path: Path) -> None:
    file = tmp_path / "token"
    words = ("broker", "token", "new", "--owner", "x", "--role", "operator", "--output", file)
    made = json.loads(adon(*words, "--expires", "2030-01-01", "--json").out)
    assert made.keys() == {"entry"} and made["entry"]["expires"] == "2030-01-01"
    assert hash_of(file.read_text().strip()) == made["entry"]["sha256"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_text()
    assert "File exists" in refusal(*words)
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--owner", "x", "--role", "king"], "argument --role: found 'king', expected one of"),
        (
            ["--owner", "", "--role", "operator"],
            "token: name: found '', expected 1 or more characters",
        ),
        (
            ["--owner", "x", "--role", "operator", "--expires", "soon"],
            "token: expires: found 'soon', expected ISO 8601",
        ),
    ],
)
def test_tokens_that_cannot_be(words: list[str], line: str) -> None:
    assert refusal("broker", "token", "new", *words).startswith(line)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"broker": {"listen": "0.0.0.0:8470"}}, "which others can reach, without security.tokens"),
        ({"security": {"tokens": [{"name": "a", "role": "operator"}]}}, "'a' has no token"),
        (
            {"security": {"tls": {"certificate": "/no.pem", "key": "/no.key"}}},
            "security.tls.certificate: /no.pem: No such file or directory, expected a PEM file",
        ),
        ({"security": {"tls": {"certificate": "x"}}}, "security.tls has no 'key', expected it"),
        (
            {"security": {"token": []}},
            "security has the unknown key 'token', did you mean 'tokens'",
        ),
    ],
)
def test_a_broker_that_would_be_open_does_not_start(
    tmp_path: Path, sections: dict[str, object], words: str
) -> None:
    assert words in refusal("broker", "--config", config_file(tmp_path, **sections))


def test_files_that_are_no_pem(tmp_path: Path) -> None:
    file = tmp_path / "adon.yml.txt"
    file.write_text("no pem")
    tls = {"certificate": str(file), "key": str(file)}
    message = refusal("broker", "--config", config_file(tmp_path, security={"tls": tls}))
    assert f"security.tls: {file}, {file}: " in message and message.endswith("that belong together")


def test_the_description_is_printed() -> None:
    description = json.loads(adon("broker", "openapi").out)
    assert "/v1/transits" in description["paths"]
