"""BMCs that do not answer as they should: each time one sentence, in time, without the password."""

import json
import socket
import ssl
import threading
from contextlib import suppress

import pytest
from bmcs import PASSWORD, certificate, redfish_emulator, secret_file
from free_ports import free_port
from msgspec.structs import replace
from slow_machine import slowness


def why_of(section, status="error"):
    assert section["status"] == status, section
    assert PASSWORD not in json.dumps(section)
    return section["why"].removeprefix("BMC 127.0.0.1: ")


def test_a_wrong_password_is_tried_once(redfish, read):
    wrong = replace(redfish.bmc, password=secret_file(redfish.folder, "wrong"))
    log = redfish.folder / "emulator.log"
    before = log.read_text().count(" 401 ")
    assert why_of(read(wrong), "denied") == "it refuses the user or the password (HTTP 401)"
    assert log.read_text().count(" 401 ") == before + 1


def test_a_wrong_password_over_ipmi(ipmi, read):
    wrong = replace(ipmi.bmc, password=secret_file(ipmi.folder, "wrong"))
    why = why_of(read(wrong), "denied")
    assert why == "it refuses the session: the user, the password or the user's privilege is wrong"


def test_an_untrusted_certificate_is_refused(redfish, read):
    assert "its certificate is not trusted: self-signed certificate" in why_of(
        read(replace(redfish.bmc, ca=None))
    )


def test_a_certificate_that_changed(redfish, read, tmp_path):
    other = certificate(tmp_path, "other")
    why = why_of(read(replace(redfish.bmc, ca=str(other))))
    assert why.startswith("its certificate is not trusted: ")
    assert why.endswith("; name it, or its CA, as `ca` of `bmc`")


def test_insecure_asks_for_no_certificate(redfish, read):
    assert read(replace(redfish.bmc, ca=None, insecure=True))["status"] == "ok"


@pytest.mark.parametrize(
    ("text", "why"), [(None, "No such file or directory"), ("x", "no PEM certificates")]
)
def test_an_invalid_ca_is_refused(redfish, read, tmp_path, text, why):
    ca = tmp_path / "ca.pem"
    if text:
        ca.write_text(text)
    assert why in why_of(read(replace(redfish.bmc, ca=str(ca))))


def test_a_port_without_a_listener_is_unreachable(redfish, read):
    nobody = replace(redfish.bmc, port=free_port())
    assert why_of(read(nobody)) == "Connection refused"


def test_an_ipmi_port_without_an_answer_times_out(ipmi, read):
    nobody = replace(ipmi.bmc, port=free_port(socket.SOCK_DGRAM))
    assert why_of(read(nobody, 1), "timeout") == "no answer in time"


def test_html(redfish, read):
    redfish.breaks("html")
    assert why_of(read(redfish.bmc)) == "its answer is not JSON but text/html; is it the BMC?"


def test_a_huge_answer(redfish, read):
    redfish.breaks("huge")
    assert why_of(read(redfish.bmc)) == "its answer has more than 8 MiB"


def test_a_resource_that_fails_leaves_only_its_own_fields_unread(redfish, read):
    redfish.breaks("html", "/redfish/v1/Chassis")
    section = read(redfish.bmc)
    assert (section["status"], section["data"]["power"]) == ("ok", "on")
    assert section["data"]["errors"]["parts"].startswith("its answer is not JSON")
    assert section["data"]["parts"] is None


def test_values_that_a_slow_bmc_sent_in_time_are_kept(redfish, read):
    redfish.breaks("slow 100", "/redfish/v1/Chassis")
    limit = 4 * slowness()
    section = read(redfish.bmc, limit)
    assert section["status"] == "ok"
    assert section["data"]["errors"]["parts"] == "no answer in time"
    assert section["seconds"] < limit + 21


def test_a_bmc_that_hangs(redfish, read):
    redfish.breaks("slow 30")
    assert why_of(read(redfish.bmc, 2), "timeout") == "no answer in time"


def test_bytes_that_trickle_in_do_not_outlast_the_deadline(redfish, read):
    """Each of them resets the timeout of the socket."""
    ended = threading.Event()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(redfish.folder / "bmc.pem", redfish.folder / "bmc.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
                tls.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not ended.wait(0.2):
                    tls.sendall(b"x")

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            section = read(replace(redfish.bmc, port=listener.getsockname()[1]), 2)
        finally:
            ended.set()
            serving.join()
    assert why_of(section, "timeout") == "no answer in time"


def test_a_password_that_is_refused_midway_is_not_tried_again(redfish, read):
    redfish.breaks("401", "/redfish/v1/Managers")
    log = redfish.folder / "emulator.log"
    before = log.read_text().count("GET ")
    data = read(redfish.bmc)["data"]
    assert log.read_text().count("GET ") == before + 3  # the systems, the system, the managers
    assert data["power"] == "on"
    assert data["parts"] is None and data["events"] is None
    assert set(data["errors"].values()) == {"it refuses the user or the password (HTTP 401)"}


def test_a_redirect_is_not_followed(redfish, read, tmp_path_factory):
    """It would carry the password to another machine."""
    with redfish_emulator(tmp_path_factory.mktemp("other")) as other:
        target = f"https://127.0.0.1:{other.port}/redfish/v1/Systems"
        redfish.breaks(f"redirect {target}", "/redfish/v1/Systems")
        assert why_of(read(redfish.bmc)) == "it answers HTTP 307"
        assert "/redfish/v1/Systems" not in (other.folder / "emulator.log").read_text()
