"""Signatures of a plan, made and verified by ssh-keygen (OpenSSH 8.2 or later).

`ssh-keygen -Y sign` signs the file of the plan byte by byte. `allowed_signers` says whose key it
is, never the signature or its file name.
"""

import hashlib
import re
import subprocess
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from nodevet.base import sshsig
from nodevet.base.printable import brief, sentence
from nodevet.fix.approval.policy import SIGNERS, Policy

NAMESPACE = "nodevet-plan@v1"
ROLLBACK = "nodevet-rollback@v1"  # over the plan of a run: that it may be rolled back
LARGEST = 64 * 1024  # bytes of a signature
MOST = 100  # signatures beside a plan


ApproveError = sshsig.SigningError


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A signature file next to the plan."""

    name: str
    data: bytes


class Signer(msgspec.Struct, frozen=True, kw_only=True):
    """The signer of a signature that fits the plan."""

    names: tuple[str, ...]  # the principals of the key's line, or of its certificate
    key: str  # fingerprint: SHA256:..., of a certificate that of its key
    file: str


def signatures(plan: Path) -> tuple[Signature, ...]:
    """The files PLAN.*.sig next to a plan. Raises ApproveError."""
    result = []
    try:
        for path in sorted(plan.parent.iterdir()):
            if not (path.name.startswith(f"{plan.name}.") and path.name.endswith(".sig")):
                continue
            if not path.is_file() or path.stat().st_size > LARGEST:
                raise ApproveError(f"{path}: not a signature; move it away")
            result.append(Signature(name=str(path), data=path.read_bytes()))
    except OSError as error:
        path_text = error.filename or plan.parent
        raise ApproveError(f"{path_text}: cannot be read: {error.strerror}") from error
    if len(result) > MOST:
        raise ApproveError(
            f"{plan}: more than {MOST} signatures; move away files that are not signatures"
        )
    return tuple(result)


def signature_file(plan: Path, principal: str) -> Path:
    """The file for the signature of a principal; each principal has a file of their own."""
    safe = re.sub(r"[^A-Za-z0-9@+_.-]", "_", principal)[:64]
    if safe != principal:
        safe += f"-{hashlib.sha256(principal.encode()).hexdigest()[:8]}"
    return plan.with_name(f"{plan.name}.{safe}.sig")


def sign(plan: bytes, key: Path, namespace: str = NAMESPACE) -> bytes:
    """The signature of a plan; see nodevet.base.sshsig.sign. Raises ApproveError."""
    return sshsig.sign([plan], key, namespace, option="--key")[0]


def signers(
    plan: bytes,
    files: Sequence[Signature],
    policy: Policy,
    now: datetime,
    namespace: str = NAMESPACE,
) -> Iterator[Signer | str]:
    """The signer of each signature, or why it does not count. Raises ApproveError."""
    with TemporaryDirectory(prefix="nodevet-approve-") as scratch:
        sshsig.require_ssh_keygen(scratch)
        Path(scratch, SIGNERS).write_text(policy.signers, encoding="utf-8")
        for signature in files:
            Path(scratch, "signature").write_bytes(signature.data)
            yield _signer(plan, signature.name, policy, now, scratch, namespace)


def _signer(
    plan: bytes, name: str, policy: Policy, now: datetime, scratch: str, namespace: str
) -> Signer | str:
    fits = sshsig.keygen(
        "check-novalidate", "-n", namespace, "-s", "signature", at=scratch, stdin=plan
    )
    key = re.search(rb"with \S+ key (SHA256:[A-Za-z0-9+/=]+)\s*\Z", fits.stdout)
    if fits.returncode != 0 or not key:
        return (
            f"{name}: does not fit this plan: the plan was changed after it was signed, or this "
            f"signs something else ({_complaint(fits)}); approve it as it is now: nodevet approve"
        )
    fingerprint = key[1].decode()
    # in local time: ssh-keygen reads a Z behind it only since OpenSSH 9.1
    moment = f"verify-time={now.astimezone():%Y%m%d%H%M%S}"
    owner = sshsig.keygen(
        *("find-principals", "-O", moment, "-s", "signature", "-f", SIGNERS), at=scratch
    )
    names = tuple(word for word in owner.stdout.decode("utf-8", "replace").split("\n") if word)
    if owner.returncode != 0 or not names:
        return (
            f"{name}: signed by a stranger: {policy.shown} has no line that is valid now for key "
            f"{fingerprint} ({_complaint(owner)}); ask the owner of that file to add one, or let "
            f"someone whom it names approve"
        )
    principal = brief(names[0])
    if any(char in word for word in names for char in "*?!\ufffd"):
        return (
            f"{name}: key {fingerprint} stands in {policy.shown} for {principal}, a pattern, so "
            "nobody can tell who signed; write the person's name there; patterns are for "
            "cert-authority"
        )
    valid = sshsig.keygen(
        *("verify", "-O", moment, "-n", namespace, "-I", names[0], "-s", "signature"),
        *("-f", SIGNERS),
        at=scratch,
        stdin=plan,
    )
    if valid.returncode != 0:
        return (
            f"{name}: {policy.shown} does not let {principal} sign plans with key {fingerprint} "
            f"({_complaint(valid)}); look at the options of their line"
        )
    return Signer(names=names, key=fingerprint, file=name)


def _complaint(process: subprocess.CompletedProcess[bytes]) -> str:
    """ssh-keygen's first words, which are the reason."""
    lines = process.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"ssh-keygen: {sentence(lines[0])}" if lines else f"ssh-keygen: {process.returncode}"
