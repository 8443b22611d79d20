"""The keys to show to a node, in the order to try them. Shard process only."""

import base64
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from paramiko import PKey, SSHException
from paramiko.agent import AgentSSH
from pyinfra.api.exceptions import PyinfraError
from pyinfra.connectors.ssh_util import load_key_with_certificate

from nodevet.fleet.route import KeyFile, Route, RouteError


class SocketAgent(AgentSSH):
    """An agent at a given socket; paramiko's own looks in the environment, which hosts share."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
            self._connect(self._socket)  # type: ignore[attr-defined]
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()


class Keys:
    """Loads each key file once for all hosts."""

    def __init__(self) -> None:
        self._load = lru_cache(maxsize=None)(_load)

    def offer(self, route: Route, agents: list[SocketAgent]) -> Iterator[PKey]:
        """The user's key for this host, then the agent's, then the rest.

        An agent that is opened is added to `agents`, for the caller to close.
        Raises RouteError for a key that the user named for this host and that cannot be used.
        """
        named = [file for file in route.key_files if file.required]
        others = [file for file in route.key_files if not file.required]
        for file in named:
            yield self._load(file)
        if route.agent:
            public = {_public(file.path) for file in route.key_files}
            for key in _agent_keys(route.agent, agents):
                if not route.only_these_keys or key.asbytes() in public:
                    yield key
        for file in others:
            if Path(file.path).is_file():
                with suppress(RouteError):
                    yield self._load(file)


def _agent_keys(path: str, agents: list[SocketAgent]) -> tuple[PKey, ...]:
    """The agent's keys; none where no agent answers, which is as common as having none."""
    try:
        agent = SocketAgent(path)
    except (OSError, SSHException):
        return ()
    agents.append(agent)
    return agent.get_keys()


def _load(file: KeyFile) -> PKey:
    """A private key and its certificate. Raises RouteError, never asks for a passphrase."""
    try:
        return load_key_with_certificate(
            key_filename=file.path, certificate_filename=file.certificate, allow_prompt=False
        )
    except PyinfraError as error:
        words = str(error)
        if "No such private key" in words:
            raise RouteError(f"key file not found: {file.path}") from error
        if "encrypted" in words:
            why = "is encrypted; add it to an ssh-agent"
            raise RouteError(f"key file {file.path} {why}") from error
        raise RouteError(f"key file {file.path} is not a private key") from error
    except OSError as error:
        raise RouteError(f"key file {file.path}: {error.strerror}") from error
    except (SSHException, ValueError) as error:
        raise RouteError(f"key file {file.path}: {error}") from error


def _public(path: str) -> bytes | None:
    """The public half of a key file, from the .pub beside it."""
    try:
        return base64.b64decode(Path(f"{path}.pub").read_text(encoding="utf-8").split()[1])
    except (OSError, ValueError, IndexError):
        return None
