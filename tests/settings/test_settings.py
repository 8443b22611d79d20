"""nodevet.toml: what it may say, and where each slip stands."""

import os
import pwd
from pathlib import Path

import pytest

from nodevet.model import Severity
from nodevet.settings import SettingsError, decode, settings
from nodevet.settings.model import fail_on

WHOLE = b"""\
store = "sqlite:///h.sqlite"
[launchers]
eu = "ssh bastion"
us = { command = "kubectl exec -i p --", known_hosts = "/k" }
[sites]
"@dc1" = ["eu", "us"]
[sweep.nightly]
inventory = "fleet.yaml"
outputs = { html = "r.html" }
fail_on = "new:critical"
notify = false
"""


def test_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "nodevet.toml").write_bytes(WHOLE)
    (tmp_path / "below").mkdir()
    found = settings(start=tmp_path / "below")
    assert found.settings.sweep["nightly"].inventory == ("fleet.yaml",)
    assert found.store_url == f"sqlite:///{tmp_path}/h.sqlite"
    assert settings(tmp_path / "nodevet.toml").settings == found.settings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a = ", "n:1:5: is not valid TOML: invalid value"),
        (b"\xff", "n:1:1: is not UTF-8"),
        (b'x = """\n[sweep]\n"""\nstor = 1\n', "n:4:1: stor: is not a known key here; did"),
        (b'a.b = 1\n[notify]\non = [\n "new",\n "fixd"]\n', "n:3:1: notify.on[1]: must be one of"),
        (b'[sweep.x]\nhosts = "a"\n  within = "soon"\n', "n:3:3: sweep.x.within: must be a time"),
        (b"[sweep.x]\n", "names no hosts; add inventory"),
        (b'[sweep.x]\nhosts = "a"\nfail_on = "newer"\n', "n:3:1: sweep.x.fail_on: must be one of"),
        (b"[[sweep]]\na = 1\n", "n:1:1: sweep: must be a mapping, not a list"),
        (b"[budget]\npercent = 0\n", "n:2:1: budget.percent: must be more than 0"),
    ],
)
def test_a_mistake_is_reported_with_its_place(text: bytes, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        decode(text, "n")
    assert said in str(caught.value)


@pytest.mark.parametrize("of", ["file", "folder"])
def test_a_file_that_others_can_write_is_used_only_if_it_is_named(tmp_path: Path, of: str) -> None:
    file = tmp_path / "nodevet.toml"
    file.write_bytes(WHOLE)
    open_to_all = file if of == "file" else tmp_path
    open_to_all.chmod(0o777)
    with pytest.raises(
        SettingsError,
        match=r"can be written by everyone; .* only if you trust who wrote it: --config",
    ):
        settings(start=tmp_path)
    named = settings(file)
    assert named.settings.sweep
    assert named.doubt.startswith(f"{open_to_all} (owner ")
    open_to_all.chmod(0o1777)
    assert bool(settings(file).doubt) == (of == "file")  # a folder like /tmp lets no one replace it


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_or_of_a_shared_group_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "nodevet.toml"
    file.write_bytes(WHOLE)
    file.chmod(0o664)
    assert settings(start=tmp_path).settings.sweep  # root's own group
    shared = pwd.getpwnam("nobody")
    os.chown(file, 0, shared.pw_gid)
    with pytest.raises(SettingsError, match=r"by its group, nogroup; .* can name commands"):
        settings(start=tmp_path)
    file.chmod(0o644)
    assert settings(start=tmp_path).doubt == ""
    os.chown(file, shared.pw_uid, 0)
    with pytest.raises(SettingsError, match=r"\(owner nobody, .* another user"):
        settings(start=tmp_path)  # though root may read it


def test_fail_on_is_parsed_into_severity_and_new() -> None:
    assert (fail_on("new").severity, fail_on("new").new) == (Severity.WARNING, True)
    assert str(fail_on("new:critical")) == "new:critical"
    assert not fail_on("info").new
