"""What mlxlink prints, in the shape of MFT 4.30's --json; it is not run here."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from nodevet.remote.probe.collectors import mlxlink
from nodevet.remote.probe.files import SectionError
from nodevet.remote.program import ToolError

Check = Callable[[str, dict[str, Any]], Any]
ANSWER = {
    "result": {
        "output": {
            "Operational Info": {"State": "Active", "Physical state": "LinkUp", "Speed": "IB-NDR"},
            "Physical Counters and BER Info": {
                "Time Since Last Clear [Min]": "25074.8",
                "Effective Physical Errors": "0",
                "Effective Physical BER": "15E-255",
                "Raw Physical Errors Per Lane": {"values": ["0", "3", "0", "0"]},
                "Raw Physical BER": "6E-10",
                "Link Down Counter": "2",
            },
        }
    },
    "status": {"code": 0, "message": "Success"},
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, check: Check) -> Callable[..., Any]:
    """The section of a node with these devices, whose mlxlink prints this text, or fails."""

    def run(text: str | Exception, *devices: str, patterns: tuple[str, ...] = ("mlx5_*",)) -> Any:
        def printed(words: list[str], seconds: float) -> str:
            assert words[1:] == ["-d", words[2], "-c", "--json"]
            if isinstance(text, Exception):
                raise text
            return text

        monkeypatch.setattr(mlxlink, "names", lambda root, path: sorted(devices))
        monkeypatch.setattr(mlxlink, "find_program", lambda name: f"/usr/bin/{name}")
        monkeypatch.setattr(mlxlink, "output_of", printed)
        return check("mlxlink", mlxlink.collect("/", {"asks": {"mlxlink": patterns}}))

    return run


def test_a_link_as_mlxlink_prints_it(told: Callable[..., Any]) -> None:
    found = told("-W- a warning {x}\n" + json.dumps(ANSWER), "mlx5_0", "rocep1s0", "irdma0")
    (link,) = found.links
    assert (found.found, link.device, link.state) == (("mlx5_0",), "mlx5_0", "Active")
    assert (link.minutes, link.effective_errors, link.link_downs) == (25074.8, 0, 2)
    assert link.effective_ber < 1e-200 and link.raw_ber == 6e-10


def test_a_rate_of_no_errors_in_any_spelling() -> None:
    for text in ("0", "0.0", "0E+00", "0.0E+0", "15E-255"):
        assert mlxlink.parse_ber(text) < 1e-200


def test_values_of_a_link_that_is_down_are_unread(told: Callable[..., Any]) -> None:
    counters = {
        "Effective Physical BER": "N/A",
        "Raw Physical BER": "much",
        "Link Down Counter": "-1",
    }
    down = {"Operational Info": {"State": "Polling"}, "Physical Counters and BER Info": counters}
    (link,) = told(json.dumps({"result": {"output": down}}), "mlx5_0").links
    assert (link.state, link.effective_ber, link.raw_ber) == ("Polling", None, None)
    assert link.why("effective_ber") == "mlxlink does not say it"
    assert "not a rate" in link.why("raw_ber") and "not a number" in link.why("link_downs")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"status": {"code": 1, "message": "Failed to open device"}}', "Failed to open device"),
        ('{"result": {}}', "no output"),
        ('{"result": [1]}', "neither a status nor a result"),
        (ToolError("mlxlink timed out after 10 s"), "timed out"),
    ],
)
def test_invalid_output_of_mlxlink_leaves_every_value_unread(
    text: str | Exception, why: str, told: Callable[..., Any]
) -> None:
    (link,) = told(text, "mlx5_0").links
    assert all(why in link.why(field) for field in mlxlink.FIELDS)


def test_only_devices_that_are_named_are_asked(told: Callable[..., Any]) -> None:
    found = told(json.dumps(ANSWER), "mlx5_0", "mlx5_1", "mlx5_bond_0", patterns=("mlx5_[0-9]*",))
    assert found.found == ("mlx5_0", "mlx5_1")
    assert told(json.dumps(ANSWER), "irdma0").links == ()


def test_mlxlink_runs_only_on_the_running_machine(told: Callable[..., Any], tmp_path: Any) -> None:
    with pytest.raises(SectionError, match="running machine only"):
        mlxlink.collect(str(tmp_path), {"asks": {"mlxlink": ["*"]}})
    with pytest.raises(SectionError, match="40 devices, more than 32"):
        told("", *(f"mlx5_{number}" for number in range(40)))


def test_a_missing_program_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlxlink, "names", lambda root, path: ["mlx5_0"])
    with pytest.raises(SectionError, match="neither mlxlink nor mstlink"):
        mlxlink.collect("/", {"asks": {"mlxlink": ["*"]}})
