"""One connection to a Redfish service: GET and POST of JSON, within a deadline and a size.

The standard library's client: it verifies TLS, follows no redirects (which would carry the password
elsewhere), and reads neither proxies nor ~/.netrc from the environment. Basic authentication: a
session that is not deleted would lock others out.
"""

import json
import math
import re
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from typing import Any

from nodevet.base.printable import brief
from nodevet.bmc.errors import (
    BmcError,
    FatalError,
    MissingResourceError,
    RefusedLoginError,
    RefusedRequestError,
)
from nodevet.model import Bmc

Document = dict[str, Any]
PATH = re.compile(r"/redfish/[\x21-\x7e]{1,2000}")
MOST_BYTES = 8 << 20  # of one answer: an event log of thousands of entries has some
PIECE = 1 << 16
TOO_LATE = "no answer in time"
MISSING = (404, 405, 501)
ACCEPTED = (200, 201, 202, 204)
REFUSED = (400, 409, 503)  # of a POST: not in this state, or not now


class Redfish:
    """The Redfish service of a BMC. Reads until `end`, by time.monotonic(), and waits for one
    answer for `answer` seconds."""

    def __init__(
        self, bmc: Bmc, password: str, end: float = math.inf, *, answer: float = math.inf
    ) -> None:
        self._bmc, self._last, self._answer = bmc, end, answer
        self._end = end  # of the answer that is awaited
        token = b64encode(f"{bmc.user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}", "Accept": "application/json"}
        self._connection: HTTPSConnection | None = None
        self._known: dict[str, Document] = {}
        self._fatal: FatalError | None = None

    def __enter__(self) -> "Redfish":
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def get(self, path: str) -> Document:
        """The resource at a path, read once. Raises BmcError."""
        if self._fatal is not None:
            raise self._fatal
        if path not in self._known:
            if not PATH.fullmatch(path):
                raise BmcError(f"it links to {brief(path)}, which is not a path of Redfish")
            try:
                self._known[path] = self._within_deadline(lambda: self._read(path))
            except FatalError as error:
                self._fatal = error
                raise
        return self._known[path]

    def post(self, path: str, body: Document) -> None:
        """Ask for an action, once: after an error it is unknown whether the BMC does it, except
        after RefusedRequestError and RefusedLoginError. Raises BmcError."""
        if not PATH.fullmatch(path):
            raise BmcError(f"it links to {brief(path)}, which is not a path of Redfish")
        self._drop()  # the BMC may have closed the connection, and a POST is not repeated
        self._known.clear()
        self._within_deadline(lambda: self._order(path, body))

    def _order(self, path: str, body: Document) -> Document:
        headers = {**self._headers, "Content-Type": "application/json"}
        connection = self._connect()
        connection.request("POST", path, body=json.dumps(body), headers=headers)
        with connection.getresponse() as response:
            if response.status in ACCEPTED:
                return {}
            if response.status in REFUSED:
                raise RefusedRequestError(f"it refuses this request now (HTTP {response.status})")
            if response.status == 403:
                raise RefusedLoginError("its user may not do this (HTTP 403)")
            return self._document(response)

    def _within_deadline(self, read: Callable[[], Document]) -> Document:
        """Call `read`. At the deadline a timer shuts its socket down, even while bytes arrive."""
        self._end = min(self._last, time.monotonic() + self._answer)
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise FatalError(TOO_LATE)
        watchdog = threading.Timer(seconds, self._shut)
        watchdog.daemon = True
        watchdog.start()
        try:
            return read()
        except BmcError:  # of an answer that the watchdog may have cut off
            if time.monotonic() >= self._end:
                raise FatalError(TOO_LATE) from None
            raise
        except ssl.SSLCertVerificationError as error:
            raise FatalError(_distrusted(error)) from None
        except ssl.SSLError as error:
            raise FatalError(f"TLS failed: {brief(error.reason or error)}") from None
        except (OSError, HTTPException, ValueError) as error:
            if time.monotonic() >= self._end or isinstance(error, TimeoutError):
                raise FatalError(TOO_LATE) from None
            reason = error.strerror if isinstance(error, OSError) else "its answer is not HTTP"
            raise FatalError(brief(reason or error)) from None
        finally:
            watchdog.cancel()

    def _read(self, path: str) -> Document:
        if self._connection is not None:
            try:
                return self._ask(self._connection, path)
            except (ConnectionError, HTTPException):  # the BMC may have closed it meanwhile
                self._drop()
        return self._ask(self._connect(), path)

    def _ask(self, connection: HTTPSConnection, path: str) -> Document:
        connection.request("GET", path, headers=self._headers)
        with connection.getresponse() as response:
            return self._document(response)

    def _connect(self) -> HTTPSConnection:
        seconds = max(0.1, self._end - time.monotonic())
        context = _tls(self._bmc)
        self._connection = connection = HTTPSConnection(
            self._bmc.address, self._bmc.port or 443, timeout=seconds, context=context
        )
        connection.connect()
        if time.monotonic() >= self._end:  # the watchdog finds no socket during the handshake
            raise TimeoutError
        return connection

    def _document(self, response: HTTPResponse) -> Document:
        if response.status == 401:
            raise RefusedLoginError("it refuses the user or the password (HTTP 401)")
        text = bytearray()
        while piece := response.read1(PIECE):
            text += piece
            if len(text) > MOST_BYTES:
                self._drop()
                raise BmcError(f"its answer has more than {MOST_BYTES >> 20} MiB")
        if response.status in MISSING:
            raise MissingResourceError(f"it has no such resource (HTTP {response.status})")
        if response.status != 200:
            raise BmcError(f"it answers HTTP {response.status}")
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            kind = brief(response.headers.get_content_type())
            raise BmcError(f"its answer is not JSON but {kind}; is it the BMC?") from None
        if not isinstance(document, dict):
            raise BmcError("its answer is not a JSON object")
        error = document.get("error")
        if isinstance(error, dict) and "@odata.id" not in document:  # DSP0266, with status 200
            raise BmcError(f"it answers an error: {brief(error.get('message') or error)}")
        return document

    def _shut(self) -> None:
        socket_now = self._connection and self._connection.sock
        if socket_now:
            try:
                socket.socket.shutdown(socket_now, socket.SHUT_RDWR)
            except OSError:
                return  # it is closed already

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _tls(bmc: Bmc) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=bmc.ca)
    except ssl.SSLError:
        raise FatalError(f"ca {bmc.ca}: has no PEM certificates") from None
    except OSError as error:
        raise FatalError(f"ca {bmc.ca}: {error.strerror}") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # `ca` may be the BMC's own certificate
    if bmc.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _distrusted(error: ssl.SSLCertVerificationError) -> str:
    why = brief(error.verify_message)
    return f"its certificate is not trusted: {why}; name it, or its CA, as `ca` of `bmc`"
