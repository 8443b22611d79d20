"""Names of hosts are found wherever they stand; what is no name of one stays."""

import pytest

from nodevet.past.redaction import Redactor

HOSTS = ("gpu003.site.example", "gpu004", "10.0.0.7", "@local", "7")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("from gpu003.site.example, 0000:bb:00.0", "from host 1, 0000:bb:00.0"),
        ("gpu003: see gpu004.", "host 1: see host 2."),
        ("gpu004.other.example and gpu004", "host 1 and host 1"),
        ("no answer of 10.0.0.7", "no answer of host 1"),
        ("driver 10.0.0 and 10.0.0.70", "driver 10.0.0 and 10.0.0.70"),
        ("@local is busy", "host 1 is busy"),
        ("7 of 7 are x7", "7 of 7 are x7"),
        ("gpu0031 and xgpu004", "gpu0031 and xgpu004"),
    ],
)
def test_names_of_hosts_are_found_in_texts(text: str, told: str) -> None:
    assert Redactor(HOSTS).text(text) == told


def test_a_host_gets_the_same_redacted_name_everywhere() -> None:
    redactor = Redactor(HOSTS)
    assert redactor.row({"host": "gpu004", "actual": "gpu003"})["actual"] == "host 2"
    assert redactor.row({"host": "gpu003.site.example", "boot_id": "b0", "groups": "r1"}) == {
        "host": "host 2",
        "boot_id": None,
        "groups": None,
    }
