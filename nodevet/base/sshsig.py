"""Signatures of OpenSSH, made by ssh-keygen (OpenSSH 8.2 or later): SSHSIG, ssh-keygen(1)."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from nodevet.base.programs import running

PATIENCE = 30.0  # seconds for ssh-keygen if it asks no one
HUMAN_PATIENCE = 300.0  # seconds for a passphrase, or a touch of a security key


class SigningError(Exception):
    """ssh-keygen failed, or a file is not usable; the message says what to do."""


def sign(documents: Sequence[bytes], key: Path, namespace: str, *, option: str) -> list[bytes]:
    """The signature of each document by a private key file, or by a public one whose private half
    the agent has.

    ssh-keygen asks at the terminal: once for a passphrase, for a touch at each document. `option`:
    the option that names the key, for errors. Raises SigningError.
    """
    if key.exists() and not key.is_file():
        raise SigningError(f"{key}: not a regular file; {option} names a key")
    with scratch_folder() as scratch:
        require_ssh_keygen(scratch)
        copies = [Path(scratch) / str(number) for number in range(len(documents))]
        for copy, document in zip(copies, documents, strict=True):
            copy.write_bytes(document)
        _sign_files(copies, key, namespace, option)
        return [Path(f"{copy}.sig").read_bytes() for copy in copies]


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for files of ssh-keygen. Raises SigningError, also if one cannot be written."""
    try:
        with TemporaryDirectory(prefix="nodevet-sign-") as folder:
            yield folder
    except OSError as error:
        raise SigningError(
            f"{error.filename or 'a temporary file'}: {error.strerror}; free some space there, or "
            "set TMPDIR to another folder"
        ) from error


def _sign_files(files: Sequence[Path], key: Path, namespace: str, option: str) -> None:
    words = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(key), *map(str, files)]
    patience = HUMAN_PATIENCE + PATIENCE * (len(files) - 1)
    try:
        # its stdin and stderr are ours: without a terminal there, it would not ask
        with running(words, stdout=subprocess.DEVNULL) as process:
            code = process.wait(patience)
    except subprocess.TimeoutExpired as error:
        raise SigningError(
            f"ssh-keygen waited {patience:.0f} seconds for the passphrase or a touch of "
            f"{key}; nothing is signed"
        ) from error
    if code != 0:
        raise SigningError(
            f"ssh-keygen did not sign with {key}, and says why above; {option} names a private "
            "key, or a public one whose private half is in the agent (ssh-add -l)"
        )


def require_ssh_keygen(scratch: str) -> None:
    """Raises SigningError if ssh-keygen is missing or older than 8.2."""
    message = keygen("find-principals", at=scratch).stderr.lower()
    words = (b"unsupported operation", b"unknown option", b"invalid option", b"illegal option")
    if any(word in message for word in words):
        raise SigningError(
            "this ssh-keygen cannot judge signatures; OpenSSH 8.2 or later is needed: ssh -V"
        )


def keygen(*words: str, at: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """`ssh-keygen -Y WORDS`, run in the folder `at`. Raises SigningError if it cannot run."""
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", *words],
            input=stdin,
            capture_output=True,
            cwd=at,
            timeout=PATIENCE,
            check=False,
        )
    except FileNotFoundError as error:
        raise SigningError(
            "ssh-keygen is not on the PATH; install OpenSSH's client, 8.2 or later"
        ) from error
    except OSError as error:
        raise SigningError(f"ssh-keygen cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise SigningError(f"ssh-keygen gave no answer for {PATIENCE:.0f} seconds") from error
