"""The passwords of BMCs: from a file, the environment or a command. They stay in memory."""

import os
import stat
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from nodevet.base.files import open_regular
from nodevet.base.trust import distrust
from nodevet.bmc.errors import BmcError
from nodevet.model import Bmc

SECONDS = 60.0  # of a command: a person may have to unlock the store of passwords
LONGEST = 1024  # characters of a password
Source = tuple[str, Any]
Secrets = Mapping[Source, str | BmcError]


def read_secrets(bmcs: Iterable[Bmc]) -> Secrets:
    """Each password, or why it cannot be read; each source is read once."""
    return {source: _read(source) for source in dict.fromkeys(map(_source, bmcs))}


def secret_of(bmc: Bmc, secrets: Secrets) -> str:
    """The password of a BMC. Raises BmcError."""
    secret = secrets[_source(bmc)]
    if isinstance(secret, BmcError):
        raise secret
    return secret


def _source(bmc: Bmc) -> Source:
    """Where its password is; the words of a command are a list if they come from a run's folder."""
    kind, where = bmc.password
    return kind, tuple(where) if isinstance(where, list) else where


def _read(source: Source) -> str | BmcError:
    kind, where = source
    try:
        text = READERS[kind](where)
    except BmcError as error:
        return error
    secret = text.split("\n", 1)[0].rstrip("\r")
    if not secret or len(secret) > LONGEST or not secret.isprintable():
        shown = where[0] if kind == "command" else where
        return BmcError(f"the password from {kind} {shown} is empty, too long or not printable")
    return secret


def _from_file(path: str) -> str:
    if why := distrust(Path(path), must_exist=True):
        raise BmcError(f"the password file {why}")
    try:
        with open_regular(Path(path)) as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise BmcError(f"others may read the password file; run: chmod 600 {path}")
            return file.read(LONGEST * 4).decode()
    except OSError as error:
        raise BmcError(f"the password file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BmcError(f"the password file {path} is not UTF-8") from None


def _from_environment(name: str) -> str:
    if name not in os.environ:
        raise BmcError(f"the variable {name}, which should hold the password, is not set")
    return os.environ[name]


def _from_command(words: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=SECONDS, check=False
        )
        if done.returncode:
            raise BmcError(f"the password command {words[0]} ended with {done.returncode}")
        return done.stdout.decode()
    except subprocess.TimeoutExpired:
        raise BmcError(f"the password command {words[0]} did not end in {SECONDS:.0f} s") from None
    except OSError as error:
        raise BmcError(f"the password command {words[0]}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BmcError(f"the output of the password command {words[0]} is not UTF-8") from None


READERS: Mapping[str, Callable[[Any], str]] = {
    "file": _from_file,
    "env": _from_environment,
    "command": _from_command,
}
