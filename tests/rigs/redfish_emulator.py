"""sushy-tools' Redfish emulator with what it lacks: a program whose word is its settings' path.

The settings are a JSON file that is read again for each request: `resources` are added to, or
replace, what the emulator answers; `broken` says how a path answers instead (slow, html, huge,
redirect, 401, `once STATUS`, `off once`: says Off in the first answer after a reset); `power` is a
hook's path, called as ipmi_sim calls it: `HOOK 0x20 set power 0`.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import flask
from sushy_tools.emulator import main
from sushy_tools.emulator.main import app, fakedriver

SETTINGS = Path(sys.argv[1])
VALUES = {"On": "1", "ForceOn": "1", "ForceOff": "0", "GracefulShutdown": "0"}


def settings() -> dict[str, Any]:
    """What the test says now."""
    found: dict[str, Any] = json.loads(SETTINGS.read_text())
    return found


class HookDriver(fakedriver.FakeDriver):
    """Power by the hook, at once."""

    def get_power_state(self, identity: str) -> str:
        words = [settings()["power"], "0x20", "get", "power"]
        return "On" if "power:1" in subprocess.check_output(words, text=True) else "Off"

    def set_power_state(self, identity: str, state: str) -> None:
        words = ["set", "power", VALUES[state]] if state in VALUES else ["set", "reset", "1"]
        subprocess.run([settings()["power"], "0x20", *words], check=True)


fakedriver.FakeDriver = HookDriver


told: list[str] = []  # what was answered once, or is to be


@app.before_request
def break_answer() -> Any:
    broken = settings().get("broken", {})
    if not broken:
        told.clear()
    how = broken.get(flask.request.path.rstrip("/"), broken.get("*", ""))
    if how == "401":
        return "{}", 401
    if how == "html":
        return "<html>Login</html>", 200, {"Content-Type": "text/html"}
    if how.startswith("redirect"):
        return flask.redirect(how.removeprefix("redirect "), code=307)
    if how == "huge":
        pieces = (b"x" * (1 << 20) for _ in range(100))
        return flask.Response(pieces, content_type="application/json")
    if how.startswith("once") and how not in told:
        told.append(how)
        return "{}", int(how.removeprefix("once "))
    if how.startswith("slow"):
        time.sleep(float(how.removeprefix("slow ")))
    return None


@app.after_request
def add_resources(response: Any) -> Any:
    path = flask.request.path.rstrip("/")
    is_early = "off once" in settings().get("broken", {}).values()
    if flask.request.method == "POST" and is_early:
        told.append("asked")
    elif is_early and path.startswith("/redfish/v1/Systems/") and "asked" in told:
        told.remove("asked")
        response.set_data(json.dumps(json.loads(response.get_data()) | {"PowerState": "Off"}))
    more = settings().get("resources", {}).get(path)
    if more is not None:
        body = json.loads(response.get_data()) if response.status_code == 200 else {}
        response.set_data(json.dumps(body | more))
        response.status_code, response.content_type = 200, "application/json"
    return response


if __name__ == "__main__":
    sys.argv[1:] = ["--config", str(SETTINGS.with_name("emulator.conf"))]
    main.main()
