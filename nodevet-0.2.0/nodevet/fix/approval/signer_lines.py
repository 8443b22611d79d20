"""Invalid lines of allowed_signers, which ssh-keygen skips without a message.

Each is `PRINCIPALS [OPTIONS] KEYTYPE BASE64 [COMMENT]`: ssh-keygen(1), ALLOWED SIGNERS.
"""

import base64
import binascii
import re
from collections.abc import Iterator

from nodevet.base.problems import Place, Problem, did_you_mean, quoted
from nodevet.document.text import Source

FORM = "alice@example.com ssh-ed25519 AAAA..."
PRIVATE = "PRIVATE KEY-----"
OPTIONS = ("cert-authority", "namespaces", "valid-after", "valid-before")
KEY_TYPE = re.compile(r"(?:sk-)?(?:ssh-(?:ed25519|rsa|dss)|ecdsa-sha2-[a-z0-9]+)[a-z0-9.@-]*")
FIELD = re.compile(r'(?:"[^"]*"|[^ \t"])+')


def signer_problems(source: Source) -> Iterator[Problem]:
    """Every line that ssh-keygen would skip. Stops at the head of a private key, since problems are
    shown with their lines."""
    for number, line in enumerate(source.text.splitlines(), 1):
        place = Place(number, 1, source.shown)
        if PRIVATE in line:
            advice = "remove it, make a new key, and copy the line of its .pub"
            yield Problem(place, "", "this is a private key", advice)
            return
        if line.strip() and not line.lstrip().startswith("#") and (problem := _line_problem(line)):
            yield Problem(place, "", *problem)


def _line_problem(line: str) -> tuple[str, str] | None:
    """The problem of a line, and advice."""
    field, *fields = FIELD.findall(line) or [line.strip()]
    if KEY_TYPE.fullmatch(field):
        principal = fields[1] if len(fields) > 1 and "@" in fields[1] else "alice@example.com"
        return (
            "the line does not say whose key this is",
            f"begin it with the name: {principal} {field} …",
        )
    if not fields:
        return f"{quoted(field)} has no key", f"write the key after the name: {FORM}"
    options = () if KEY_TYPE.fullmatch(fields[0]) else tuple(_options(fields.pop(0)))
    for name in options:
        if name not in OPTIONS:
            advice = did_you_mean(name, OPTIONS, f"there are {', '.join(OPTIONS)}")
            return f"{quoted(name)} is neither an option nor a type of key", advice
    if len(fields) < 2:
        return f"{quoted(field)} has no key", f"write the key after the name: {FORM}"
    return _key_problem(fields[0], fields[1])


def _key_problem(kind: str, text: str) -> tuple[str, str] | None:
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        blob = b""
    length = int.from_bytes(blob[:4], "big")
    if blob[4 : 4 + length] == kind.encode() and len(blob) > 4 + length:
        return None
    return f"the {quoted(kind)} key is damaged", "copy the whole line of the .pub file again"


def _options(text: str) -> Iterator[str]:
    """The names of `cert-authority,namespaces="a,b"`."""
    for option in re.findall(r'(?:"[^"]*"|[^,"])+', text):
        yield option.partition("=")[0].lower()
