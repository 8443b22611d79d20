"""Read one BMC, as a section of the evidence."""

import time
from collections.abc import Sequence
from typing import Any

from nodevet.bmc import ipmi, redfish
from nodevet.bmc.errors import BmcError, RefusedLoginError
from nodevet.bmc.fields import RecordFields
from nodevet.bmc.https import Redfish
from nodevet.bmc.secrets import Secrets, secret_of
from nodevet.model import Bmc


def read_section(
    bmc: Bmc, secrets: Secrets, seconds: float | None = None, attributes: Sequence[str] = ()
) -> dict[str, Any]:
    """The section `bmc` in its JSON form: its fields, or why there are none. `seconds`: the time
    limit; None: that of the BMC. `attributes`: of the BIOS, by the names in baselines."""
    began = time.monotonic()
    seconds = bmc.timeout if seconds is None else seconds
    try:
        data = _read(bmc, secret_of(bmc, secrets), began + seconds, attributes)
    except BmcError as error:
        status = "timeout" if time.monotonic() >= began + seconds else "error"
        status = "denied" if isinstance(error, RefusedLoginError) else status
        section: dict[str, Any] = {"status": status, "why": f"BMC {bmc.address}: {error}"}
    else:
        section = {"status": "ok", "data": data}
    return {**section, "seconds": round(time.monotonic() - began, 3)}


def _read(bmc: Bmc, password: str, end: float, attributes: Sequence[str]) -> RecordFields:
    if bmc.kind == "ipmi":
        return ipmi.read(ipmi.Ipmi(bmc, password, end))
    with Redfish(bmc, password, end) as service:
        return redfish.read(service, attributes)
