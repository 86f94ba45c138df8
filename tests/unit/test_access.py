"""Keys, tokens and roles: who is recognised, and what they may."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_rig import Clock, code_of

from adon.config.adon_yml import load_config, parse_config
from adon.config.sections import Config
from adon.config.security import (
    LiveKeyring,
    check_exposure,
    is_loopback,
    keyring_of,
    protection_text,
)
from network_provisioner.access import (
    ANYBODY,
    Key,
    Keyring,
    Principal,
    Role,
    hash_of,
)
from network_provisioner.base.errors import InputError
from network_provisioner.client.credentials import from_environment, read_token

NOBODY: dict[str, list[object]] = {"nodes": [], "links": []}
ADA = Principal("ada", Role.RESEARCHER, frozenset({"ada"}))


def config(listen: str = "127.0.0.1:8470", token: str | None = None, **security: object) -> Config:
    broker = {"listen": listen, "token": token}
    return parse_config({"topology": NOBODY, "broker": broker, "security": security}, "adon.yml")


def test_a_token_is_its_holder_and_no_other_is() -> None:
    ring = Keyring([Key(ADA, hash_of("a" * 20))], Clock())
    assert ring.recognise("a" * 20, None) is ADA
    for wrong in ("a" * 19, "", "A" * 20, "é", "\ud800", hash_of("a" * 20)):
        assert code_of(ring.recognise, wrong, None) == "unauthorized"
    assert code_of(ring.recognise, None, None) == "unauthorized"
    # All of its hash counts.
    for other in (f"{hash_of('a' * 20)[:-1]}-", hash_of("a" * 20)[:-1], hash_of("a" * 20) + "0"):
        alike = Keyring([Key(ADA, other)], Clock())
        assert code_of(alike.recognise, "a" * 20, None) == "unauthorized"


def test_a_certificate_stands_for_its_name_and_a_token_goes_before_it() -> None:
    eve = Principal("eve", Role.OPERATOR)
    ring = Keyring([Key(ADA), Key(eve, hash_of("e" * 20))], Clock())
    assert ring.recognise(None, "ada") is ADA
    assert ring.recognise("e" * 20, "ada") is eve
    for other in ("mallory", "ada2", "ad", "Ada"):
        assert code_of(ring.recognise, None, other) == "unauthorized"
    assert code_of(ring.recognise, "wrong", "ada") == "unauthorized"
    nameless = Keyring([Key(Principal("", Role.ENGINEER), hash_of("n" * 20))], Clock())
    assert code_of(nameless.recognise, None, "") == "unauthorized"
    # A key without a token is not opened by what stands for none.
    for empty in ("", "-"):
        assert code_of(ring.recognise, empty, None) == "unauthorized"


def test_a_key_expires_at_its_instant() -> None:
    clock = Clock(100.0)
    ring = Keyring([Key(ADA, hash_of("a" * 20), 200.0)], clock)
    assert ring.recognise("a" * 20, None) is ADA
    clock.now = 200.0
    assert code_of(ring.recognise, "a" * 20, None) == "token_expired"
    assert code_of(ring.recognise, None, "ada") == "token_expired"


def test_without_keys_anybody_is_everything() -> None:
    assert Keyring([], Clock()).recognise("whatever", None) is ANYBODY
    assert ANYBODY.acting("u", "p") == ("u", "p") and ANYBODY.acting("", "") == ("", "")


def test_names_are_a_researchers_own() -> None:
    assert ADA.acting("", "any") == ("ada", "any")
    assert ADA.acting("ada", "") == ("ada", "")
    assert code_of(ADA.acting, "eve", "") == "forbidden"
    principal = Principal("ada", Role.RESEARCHER, frozenset({"ada"}), frozenset({"soykb"}))
    assert principal.acting("", "") == ("ada", "soykb")
    assert code_of(principal.acting, "", "other") == "forbidden"
    two = Principal("ada", Role.RESEARCHER, frozenset({"ada"}), frozenset({"soykb", "x"}))
    assert two.acting("", "") == ("ada", "")
    assert Principal("hub", Role.RESEARCHER, None).acting("eve", "") == ("eve", "")


# -- from adon.yml ---------------------------------------------------------------------------


def test_keys_from_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("f" * 30 + "\n")
    ring = keyring_of(
        config(
            token="old and known",
            tokens=[
                {"name": "ada", "role": "researcher", "sha256": hash_of("a" * 20).upper()},
                {"name": "bob", "role": "operator", "token_file": str(file)},
                {"name": "hub", "role": "researcher", "token": "h" * 20, "users": "*"},
                {"name": "two", "role": "researcher", "token": "t" * 20, "users": ["x", "y"]},
                {"name": "all", "role": "researcher", "token": "l" * 20, "users": ["*"]},
            ],
        ),
        Clock(),
    )
    assert ring.recognise("a" * 20, None) == ADA
    assert ring.recognise("f" * 30, None) == Principal("bob", Role.OPERATOR)
    assert ring.recognise("h" * 20, None).users is None
    assert ring.recognise("t" * 20, None).users == {"x", "y"}
    assert ring.recognise("l" * 20, None).users is None
    old = ring.recognise("old and known", None)
    assert (old.role, old.acting("", "")) == (Role.ENGINEER, ("", ""))
    assert len(ring) == 6


def test_expiry_is_utc_where_no_zone_is_named() -> None:
    entry = {"name": "a", "role": "operator", "token": "t" * 20}
    for text, at in (
        ("1970-01-02", 86_400.0),
        (19700102, 86_400.0),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("1970-01-01 00:01", 60.0),
    ):
        clock = Clock(at)
        ring = keyring_of(config(tokens=[{**entry, "expires": text}]), clock)
        assert code_of(ring.recognise, "t" * 20, None) == "token_expired"
        clock.now = at - 1
        assert ring.recognise("t" * 20, None).name == "a"


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([{"name": "a", "role": "king"}], "security.tokens.0.role: found 'king', expected"),
        (
            [{"name": "a", "rol": "x"}],
            "tokens.0 has the unknown key 'rol', did you mean 'role'?",
        ),
        ([{"name": "a"}], "security.tokens.0 has no 'role', expected it"),
        ([{"name": "a", "role": "operator"}], "'a' has no token, expected token_file or sha256"),
        ([{"name": "a", "role": "operator", "token": "short"}], "of 5 characters, expected at"),
        (
            [{"name": "a", "role": "operator", "sha256": "secret"}],
            "sha256: found something else, expected 64 ",
        ),
        (
            [{"name": "a", "role": "operator", "token": 12345}],
            "tokens.0.token: found no text, expected",
        ),
        ([{"name": "a", "role": "operator", "token_file": "/nowhere"}], "/nowhere: cannot be read"),
        (
            [{"name": "a", "role": "operator", "token": "t" * 20, "sha256": "0" * 64}],
            "has token and sha256, expected one of them",
        ),
        (
            [{"name": n, "role": "operator", "token": "t" * 20} for n in "ab"],
            "found a name or a token twice",
        ),
        (
            [{"name": "a", "role": "operator", "token": 20 * t} for t in "ab"],
            "found a name or a token twice",
        ),
        (
            [{"name": "a", "role": "operator", "token": "t" * 20, "users": "a"}],
            "security.tokens.0.users: found 'a', expected a list",
        ),
        (
            [{"name": "a", "role": "operator", "token": "t" * 20, "expires": "soon"}],
            "expires: found 'soon', expected ISO 8601",
        ),
    ],
)
def test_bad_keys_are_one_line_without_secrets(tokens: list[object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        keyring_of(config(tokens=tokens), Clock())
    text = str(caught.value)
    assert words in text and "\n" not in text
    assert "ttttt" not in text and "short" not in text and "12345" not in text


@pytest.mark.parametrize("content", [b"", b"two words of it", b"\xff" * 20, b"a" * 5000, b"abc"])
def test_files_that_have_no_token(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_token(file)
    assert str(file) in str(caught.value) and "aaaa" not in str(caught.value)


def test_credentials_from_the_environment(tmp_path: Path) -> None:
    assert from_environment({})[0] is None
    assert from_environment({"ADON_TOKEN": "t"})[0] == "t"
    file = tmp_path / "token"
    file.write_text("f" * 20)
    token, tls = from_environment(
        {"ADON_TOKEN": "t", "ADON_TOKEN_FILE": str(file), "ADON_CA": "ca", "ADON_KEY": ""}
    )
    assert token == "f" * 20 and (tls.ca, tls.certificate, tls.key) == ("ca", None, None)


# -- where it listens ------------------------------------------------------------------------

TOKENS = [{"name": "a", "role": "operator", "token": "t" * 20}]
TLS = {"certificate": "c.pem", "key": "k.pem"}


@pytest.mark.parametrize("listen", ["0.0.0.0:8470", "192.0.2.1:8470", "broker.example.org:1"])
@pytest.mark.parametrize(
    ("security", "lacking"),
    [
        ({}, "without security.tokens and security.tls"),
        ({"tokens": TOKENS}, "without security.tls;"),
        ({"tls": TLS}, "without security.tokens;"),
    ],
)
def test_others_reach_it_with_tls_and_tokens_only(
    listen: str, security: dict[str, object], lacking: str
) -> None:
    given = config(listen, **security)
    with pytest.raises(InputError, match=lacking) as caught:
        check_exposure(given, keyring_of(given))
    assert listen in str(caught.value) and "\n" not in str(caught.value)
    both = config(listen, tokens=TOKENS, tls=TLS)
    check_exposure(both, keyring_of(both))


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"])
def test_loopback_needs_nothing(listen: str) -> None:
    given = config(listen)
    check_exposure(given, keyring_of(given))


def test_what_is_no_address_is_not_loopback() -> None:
    assert not is_loopback("localhost.example.org") and not is_loopback("127.0.0.1.example.org")


def test_a_science_dmz_is_for_those_who_are_known() -> None:
    nodes = [{"name": "mu", "kind": "site", "dmz": True}]
    data = {"topology": {"nodes": nodes, "links": []}}
    given = parse_config(data, "adon.yml")
    with pytest.raises(InputError, match=r"mu.*DMZ.*security\.tokens"):
        check_exposure(given, keyring_of(given))
    known = parse_config({**data, "security": {"tokens": TOKENS}}, "adon.yml")
    check_exposure(known, keyring_of(known))


def test_how_it_is_protected_is_said() -> None:
    def words(**security: object) -> str:
        given = config(**security)
        return protection_text(given, keyring_of(given))

    assert words() == "no TLS, no tokens: everybody on this machine may do everything"
    assert words(tokens=TOKENS) == "no TLS, 1 key"
    assert words(tokens=TOKENS, tls=TLS) == "TLS, 1 key"
    mutual = {**TLS, "clients": "ca.pem"}
    assert words(tokens=TOKENS, tls=mutual) == "TLS, clients by certificate, 1 key"


# -- while it runs ---------------------------------------------------------------------------


def test_a_token_is_withdrawn_without_a_restart(tmp_path: Path) -> None:
    file, mine, adon = tmp_path / "t", tmp_path / "mine", tmp_path / "adon.yml"
    file.write_text("f" * 20)
    mine.write_text("m" * 20)

    def write(*entries: str) -> None:
        lines = "".join(f"    - {{role: operator, {entry}}}\n" for entry in entries)
        adon.write_text(f"topology: {{nodes: [], links: []}}\nsecurity:\n  tokens:\n{lines}")

    ada, bob = f"name: ada, sha256: {hash_of('a' * 20)}", f"name: bob, token_file: {file}"
    write(ada, bob, f"name: me, token_file: {mine}")
    ring = LiveKeyring(adon, load_config(adon))
    assert [ring.recognise(c * 20, None).name for c in "afm"] == ["ada", "bob", "me"]
    file.write_text("n" * 30)
    assert code_of(ring.recognise, "f" * 20, None) == "unauthorized"
    assert ring.recognise("n" * 30, None).name == "bob"
    file.unlink()  # only that one is lost
    assert code_of(ring.recognise, "n" * 30, None) == "unauthorized"
    assert ring.recognise("a" * 20, None).name == "ada"
    file.write_text("f" * 20)
    assert ring.recognise("f" * 20, None).name == "bob"
    write(f"name: me, token_file: {mine}")
    assert code_of(ring.recognise, "a" * 20, None) == "unauthorized"
    adon.write_text("topology: [")  # somebody is still writing
    assert ring.recognise("m" * 20, None).name == "me"
    adon.write_text("topology: {nodes: [], links: []}")  # none left: closed, not open to all
    assert code_of(ring.recognise, "m" * 20, None) == "unauthorized"
    assert code_of(ring.recognise, None, None) == "unauthorized"
