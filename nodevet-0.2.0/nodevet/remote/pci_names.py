"""Names of PCI functions, and of those of their registers that fixes set."""

import re

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\Z")
REGISTER = re.compile(
    r"([0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]):(CAP_EXP\+8\.w|ECAP_ACS\+6\.w)\Z"
)
"""A function and its register, as setpci names it: DevCtl or ACSCtl."""
MASKS = {"CAP_EXP+8.w": 0x7010, "ECAP_ACS+6.w": 0x000C}
"""The bits that fixes set: MaxReadReq and RlxdOrd of DevCtl; ReqRedir and CmpltRedir of ACSCtl."""
