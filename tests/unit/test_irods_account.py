"""Who one is in an iRODS zone: URLs, environments, passwords and tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from irods.password_obfuscation import encode

from condor_plugins.irods import account as module
from condor_plugins.irods.account import IrodsUrl, account, keep_password, parsed
from network_provisioner.base.errors import InputError

URL = IrodsUrl("/iplant/home/ann/reads.fq")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a password and an environment."""
    (tmp_path / "home/.irods").mkdir(parents=True)
    (tmp_path / "job").mkdir()
    (tmp_path / "creds").mkdir()
    settings(tmp_path / "home/.irods", irods_host="data.example", irods_user_name="ann")
    (tmp_path / "home/.irods/.irodsA").write_text(encode("kept"))
    return tmp_path


def settings(folder: Path, **values: str | float) -> None:
    (folder / "irods_environment.json").write_text(json.dumps(values))


def env(home: Path, *more: str) -> dict[str, str]:
    return {"HOME": str(home / "home")} | ({"_CONDOR_CREDS": str(home / "creds")} if more else {})


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("irods:///z/a", IrodsUrl("/z/a")),
        ("irods://h/z/a%20b%3Fc", IrodsUrl("/z/a b?c", "h")),
        ("irods://ann@h:99/z//a/", IrodsUrl("/z/a", "h", 99, "ann")),
    ],
)
def test_urls(url: str, wanted: IrodsUrl) -> None:
    assert parsed(url) == wanted


@pytest.mark.parametrize(
    "url",
    [
        "irods://h/z",
        "irods://h/",
        "irods://h:x/z/a",
        "http://h/z/a",
        "irods://h/z/a?b",
    ],
)
def test_urls_that_are_none_of_irods(url: str) -> None:
    with pytest.raises(InputError, match=r"expected irods://\[user@\]\[host\[:port\]\]/zone/path"):
        parsed(url)


def test_a_url_holds_no_password_and_none_is_repeated() -> None:
    with pytest.raises(InputError, match="found a password in the URL") as error:
        parsed("irods://ann:tulip@h/z/a")
    assert "tulip" not in str(error.value)


def test_the_home_is_used_where_the_job_brings_nothing(home: Path) -> None:
    login = account(URL, env(home), home / "job")
    assert (login["irods_host"], login["irods_port"]) == ("data.example", 1247)
    assert (login["irods_user_name"], login["irods_zone_name"]) == ("ann", "iplant")
    assert login["password"] == "kept"


def test_what_the_job_brings_goes_first_and_the_url_before_it(home: Path) -> None:
    settings(home / "job", irods_host="own.example", irods_port=7, irods_user_name="bob",
             irods_zone_name="z", irods_authentication_scheme="pam_password",
             irods_authentication_uid=4711)  # fmt: skip
    (home / "job/.irodsA").write_text(encode("own", uid=4711))
    (home / "creds/irods.use").write_text("token")
    login = account(IrodsUrl("/z/a", "other.example", user="eve"), env(home, "creds"), home / "job")
    assert login["irods_host"] == "other.example"
    assert (login["irods_port"], login["irods_user_name"]) == (7, "eve")
    assert (login["password"], login["irods_authentication_scheme"]) == ("own", "native")


@pytest.mark.parametrize("text", ["tulip\n", '{"access_token": "tulip", "expires_in": 60}'])
def test_a_token_is_the_password(home: Path, text: str) -> None:
    settings(home / "home/.irods", irods_host="h", irods_user_name="ann",
             irods_authentication_scheme="pam_password")  # fmt: skip
    (home / "creds/irods.use").write_text(text)
    login = account(URL, env(home, "creds"), home / "job")
    assert (login["password"], login["irods_authentication_scheme"]) == ("tulip", "pam_password")


@pytest.mark.parametrize("port", ["1248", 1248, 1248.0, " 1248 "])
def test_numbers_may_be_text(home: Path, port: str) -> None:
    settings(home / "job", irods_host="h", irods_user_name="4711", irods_port=port,
             irods_encryption_key_size="32", irods_encryption_num_hash_rounds="16",
             irods_encryption_salt_size=8, irods_authentication_uid="4711")  # fmt: skip
    (home / "job/.irodsA").write_text(encode("own", uid=4711))
    login = account(URL, env(home), home / "job")
    assert (login["irods_port"], login["irods_user_name"]) == (1248, "4711")
    assert [login[f"irods_encryption_{name}"] for name in
            ("key_size", "num_hash_rounds", "salt_size")] == [32, 16, 8]  # fmt: skip
    assert login["password"] == "own"


def test_what_is_no_number(home: Path) -> None:
    settings(home / "job", irods_host="h", irods_user_name="ann", irods_port="irods")
    with pytest.raises(InputError, match="irods_port is 'irods', expected a whole number"):
        account(URL, env(home), home / "job")


@pytest.mark.parametrize(
    ("written", "scheme"),
    [("PAM", "pam_password"), ("pam", "pam_password"), ("PAM_PASSWORD", "pam_password"),
     ("Native", "native"), ("pam_interactive", "pam_interactive")],
)  # fmt: skip
def test_schemes_in_any_case(home: Path, written: str, scheme: str) -> None:
    settings(home / "job", irods_host="h", irods_user_name="ann",
             irods_authentication_scheme=written)  # fmt: skip
    (home / "creds/irods.use").write_text("token")
    login = account(URL, env(home, "creds"), home / "job")
    assert (login["password"], login["irods_authentication_scheme"]) == ("token", scheme)


def test_gsi_needs_no_password(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings(home / "job", irods_host="h", irods_user_name="ann", irods_authentication_scheme="GSI")
    nowhere = {"HOME": str(home)}
    monkeypatch.setattr(module, "find_spec", lambda _: object())
    login = account(URL, nowhere, home / "job")
    assert (login["irods_authentication_scheme"], login["password"]) == ("gsi", "")
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(
        InputError, match=r"gsi, expected the Python package gssapi for it, or a pa"
    ):
        account(URL, nowhere, home / "job")
    assert account(URL, env(home), home / "job")["irods_authentication_scheme"] == "native"


def test_files_named_by_the_environment(home: Path) -> None:
    settings(home, irods_host="named.example", irods_user_name="ann")
    (home / "secret").write_text(encode("named"))
    named = {
        "IRODS_ENVIRONMENT_FILE": str(home / "irods_environment.json"),
        "IRODS_AUTHENTICATION_FILE": str(home / "secret"),
    }
    login = account(URL, env(home) | named, home / "job")
    assert (login["irods_host"], login["password"]) == ("named.example", "named")
    where = {"irods_authentication_file": named.pop("IRODS_AUTHENTICATION_FILE")}
    settings(home, irods_host="named.example", irods_user_name="ann", **where)
    assert account(URL, env(home) | named, home / "job")["password"] == "named"


def test_nobody(home: Path) -> None:
    nowhere = {"HOME": str(home)}
    with pytest.raises(InputError, match="found no irods_host for /iplant"):
        account(URL, nowhere, home / "job")
    with pytest.raises(InputError, match="found no password of ann in zone iplant, expected"):
        account(IrodsUrl(URL.path, "h", user="ann"), nowhere, home / "job")
    login = account(IrodsUrl(URL.path, "h", user="anonymous"), nowhere, home / "job")
    assert login["password"] == ""
    for text in ("[]", "{"):
        (home / "job/irods_environment.json").write_text(text)
        with pytest.raises(InputError, match="expected iRODS's settings in JSON"):
            account(URL, nowhere, home / "job")


def test_a_password_may_stand_in_the_environment_as_pegasus_has_it(home: Path) -> None:
    settings(home / "job", irods_host="h", irods_user_name="ann", irods_password="pegasus")
    login = account(URL, env(home), home / "job")
    assert login["password"] == "pegasus" and "irods_password" not in login
    (home / "job/.irodsA").write_text(encode("own"))
    assert account(URL, env(home), home / "job")["password"] == "own"


def test_a_kept_password_is_found_again(home: Path) -> None:
    file = home / "job/.irodsA"
    keep_password("tulip", {**env(home), "IRODS_AUTHENTICATION_FILE": str(file)})
    assert file.stat().st_mode & 0o777 == 0o600 and "tulip" not in file.read_text()
    assert account(URL, env(home), home / "job")["password"] == "tulip"
