"""A nodevet.toml that would take forever to read, or that Python cannot read, is a plain error."""

import pytest

from nodevet.settings import SettingsError, decode

HOSTILE = {
    "a number": (b"x = " + b"9" * 6000, "has a number with too many digits"),
    "a key": (b"a" + b".a" * 50_000 + b" = 1\n", "has a key of more than 32 parts"),
    "a quoted key": (b'"a"' + b".'a'" * 50_000 + b" = 1\n", "has a key of more than 32 parts"),
    "a table": (b"\n[" + b"a." * 50_000 + b"a]\n", "has a key of more than 32 parts"),
    "lists": (b"x = " + b"[" * 50_000, "is nested too deeply"),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("data", "why"), HOSTILE.values(), ids=HOSTILE)
def test_e20_a_hostile_file_of_settings_is_reported_at_once(data: bytes, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        decode(data, "nodevet.toml")


def test_e20_a_long_comment_with_dots_is_not_refused_as_a_key() -> None:
    names = ", ".join(f"gpu{number}.rack.example.com" for number in range(40))
    assert decode(f"[sweep.x]\nhosts = ['gpu1']\n# {names} ...........\n".encode(), "t").sweep
