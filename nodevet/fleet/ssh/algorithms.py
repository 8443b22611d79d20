"""Ciphers, MACs, KexAlgorithms and the like of ssh_config(5). Shard process only.

They choose among what paramiko has. Without them its own defaults are taken, but for ciphers: as
ssh does, those are asked for first that need no MAC, which takes much of a transfer's time.
"""

from collections.abc import Sequence

from paramiko import PKey, Transport

from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.host_config import HostConfig
from nodevet.fleet.ssh.words import listed

RSA = ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa")
SAME = {"curve25519-sha256": "curve25519-sha256@libssh.org"}  # one algorithm, two names
FIELDS = {
    "ciphers": "ciphers",
    "macs": "digests",
    "kexalgorithms": "kex",
    "hostkeyalgorithms": "key_types",
}


def narrow(transport: Transport, config: HostConfig, known: Sequence[str]) -> None:
    """Offer the server what the user allows; keys of the types that are known first.

    Raises SshConfigError if nothing is left.
    """
    options = transport.get_security_options()
    told = dict(config.algorithms)
    options.ciphers = sorted(options.ciphers, key=lambda name: "-gcm@" not in name)
    for keyword, field in FIELDS.items():
        if keyword in told:
            setattr(options, field, chosen(keyword, told[keyword], getattr(options, field)))
    if told.get("hostkeyalgorithms", "+")[0] in "+-":  # else the order is the user's
        options.key_types = _prefer(options.key_types, known)


def chosen(keyword: str, wish: str, ours: Sequence[str]) -> tuple[str, ...]:
    """What a list of the user's leaves of ours: `a,b` these alone, `+a` these too, `-a*`, `^a`."""
    sign, names = (wish[0], wish[1:]) if wish[0] in "+-^" else ("", wish)
    asked = [name for each in names.split(",") for name in _spelled(each, ours)]
    if sign == "+":
        left = list(ours)
    elif sign == "-":
        patterns = names.split(",")
        out = {each for each in ours for name in _names(each) if listed(name, patterns)}
        left = [each for each in ours if each not in out]
    else:
        left = [*asked, *(each for each in ours if sign and each not in asked)]
    if not left:
        raise SshConfigError(f"ssh_config: {keyword} {wish}: nodevet has none of these")
    return tuple(dict.fromkeys(left))


def usable(config: HostConfig, key: PKey) -> bool:
    """Whether the user lets a key of this type and size be shown to the host."""
    told = dict(config.algorithms)
    name = getattr(getattr(key, "public_blob", None), "key_type", None) or key.get_name()
    names = [f"{each}{name[7:]}" for each in RSA[:2]] if name.startswith("ssh-rsa") else [name]
    if "pubkeyacceptedalgorithms" in told:
        try:
            chosen("pubkeyacceptedalgorithms", told["pubkeyacceptedalgorithms"], names)
        except SshConfigError:
            return False
    return large(config, key)


def large(config: HostConfig, key: PKey) -> bool:
    """Whether an RSA key has the RequiredRSASize."""
    least = int(dict(config.algorithms).get("requiredrsasize", "0"))
    return key.get_name() != "ssh-rsa" or key.get_bits() >= least


def _spelled(name: str, ours: Sequence[str]) -> list[str]:
    return [each for each in ours if name in _names(each)]


def _names(name: str) -> list[str]:
    return [name, *(short for short, full in SAME.items() if full == name)]


def _prefer(algorithms: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Host key algorithms, those of known keys first, so that a known key is what is shown."""
    first = [name for kind in known for name in (RSA if kind == "ssh-rsa" else (kind,))]
    return tuple(
        sorted(algorithms, key=lambda name: first.index(name) if name in first else len(first))
    )
