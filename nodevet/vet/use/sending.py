"""A process that sends one message through Apprise. It reads the message and the addresses from
standard input, and writes a line of JSON for each address when it is done."""

import logging
import os
import sys
from collections.abc import Sequence

import msgspec

from nodevet.base.typed import decode

INSTALL = "install it with: pip install 'nodevet[notify]'"
Answer = tuple[int, str]  # the number of an address, and why it failed; empty: it was sent


class Sending(msgspec.Struct, frozen=True):
    """A message, and the addresses to send it to."""

    urls: Sequence[str]
    title: str
    body: str


def main() -> None:
    """Send, and end at once: threads of Apprise may go on for as long as a server likes."""
    sending = decode(sys.stdin.buffer.read(), Sending)
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # plug-ins may print
    for number, url in enumerate(sending.urls, 1):
        answers.write(msgspec.json.encode((number, _send(url, sending))) + b"\n")
        answers.flush()
    os._exit(0)


def _send(url: str, sending: Sending) -> str:
    """Why it could not be sent; empty if it was."""
    try:
        import apprise
    except ImportError:
        return f"Apprise is not installed; {INSTALL}"
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # it writes addresses
    try:
        asset = apprise.AppriseAsset()
        asset.http_redirects = False  # requests would repeat most of them without the message
        service = apprise.Apprise(asset=asset)
        if not service.add(url):
            return "Apprise does not know this kind of address"
        sent = service.notify(
            title=sending.title, body=sending.body, body_format=apprise.NotifyFormat.TEXT
        )
    except Exception as error:  # of a plug-in: its text may hold the address
        return f"it failed: {type(error).__name__}"
    return "" if sent else "it was not accepted: check the address, its token and the network"


if __name__ == "__main__":
    main()
