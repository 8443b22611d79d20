"""nodevet.toml: what it may say, and where each slip stands."""

from pathlib import Path

import pytest

from nodevet.model import Severity
from nodevet.settings import SettingsError, decoded, settings
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
        (b'x = """\n[sweep]\n"""\nstor = 1\n', "n:4:1: stor: is not a key that is known here; did"),
        (b'a.b = 1\n[notify]\non = [\n "new",\n "fixd"]\n', "n:3:1: notify.on[1]: must be one of"),
        (b'[sweep.x]\nhosts = "a"\n  within = "soon"\n', "n:3:3: sweep.x.within: must be a time"),
        (b"[sweep.x]\n", "names no hosts; add inventory"),
        (b'[sweep.x]\nhosts = "a"\nfail_on = "newer"\n', "n:3:1: sweep.x.fail_on: must be one of"),
        (b"[[sweep]]\na = 1\n", "n:1:1: sweep: must be a mapping, not a list"),
        (b"[budget]\npercent = 0\n", "n:2:1: budget.percent: must be more than 0"),
    ],
)
def test_a_slip_is_told_where_it_stands(text: bytes, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        decoded(text, "n")
    assert said in str(caught.value)


def test_a_file_that_others_may_write_is_not_taken_up_unnamed(tmp_path: Path) -> None:
    file = tmp_path / "nodevet.toml"
    file.write_bytes(WHOLE)
    file.chmod(0o666)
    with pytest.raises(SettingsError, match="can be written by everyone; if it is right, name it"):
        settings(start=tmp_path)
    assert settings(file).settings.sweep


def test_when_a_run_fails() -> None:
    assert (fail_on("new").severity, fail_on("new").new) == (Severity.WARNING, True)
    assert str(fail_on("new:critical")) == "new:critical"
    assert not fail_on("info").new
