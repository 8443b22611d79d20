"""Ciphers, MACs, KexAlgorithms and the like of ssh_config(5). Shard process only.

They choose among paramiko's algorithms. Without them its defaults hold, except that ciphers without
a MAC come first, as in ssh: a MAC takes much of a transfer's time.
"""

from collections.abc import Sequence

from paramiko import PKey, Transport

from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.host_config import HostConfig
from nodevet.fleet.ssh.words import is_listed

RSA = ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa")
SAME = {"curve25519-sha256": "curve25519-sha256@libssh.org"}  # one algorithm, two names
FIELDS = {
    "ciphers": "ciphers",
    "macs": "digests",
    "kexalgorithms": "kex",
    "hostkeyalgorithms": "key_types",
}


def narrow(transport: Transport, config: HostConfig, known: Sequence[str]) -> None:
    """Offer the server only algorithms that the user allows, and first key types that are known.

    Raises SshConfigError if nothing remains.
    """
    options = transport.get_security_options()
    lists = dict(config.algorithms)
    options.ciphers = sorted(options.ciphers, key=lambda name: "-gcm@" not in name)
    for keyword, field in FIELDS.items():
        if keyword in lists:
            setattr(options, field, choose(keyword, lists[keyword], getattr(options, field)))
    if lists.get("hostkeyalgorithms", "+")[0] in "+-":  # else the order is the user's
        options.key_types = _prefer(options.key_types, known)


def choose(keyword: str, choice: str, offered: Sequence[str]) -> tuple[str, ...]:
    """The offered algorithms by the user's list: `a,b` only these, `+a` also these, `-a*`, `^a`."""
    sign, names = (choice[0], choice[1:]) if choice[0] in "+-^" else ("", choice)
    selected = [ours for name in names.split(",") for ours in offered if name in _names(ours)]
    if sign == "+":
        result = list(offered)
    elif sign == "-":
        patterns = names.split(",")
        result = [
            algorithm
            for algorithm in offered
            if not any(is_listed(name, patterns) for name in _names(algorithm))
        ]
    else:
        result = [
            *selected,
            *(algorithm for algorithm in offered if sign and algorithm not in selected),
        ]
    if not result:
        raise SshConfigError(f"ssh_config: {keyword} {choice}: nodevet has none of these")
    return tuple(dict.fromkeys(result))


def is_allowed(config: HostConfig, key: PKey) -> bool:
    """Whether ssh_config allows a key of this type and size."""
    lists = dict(config.algorithms)
    name = getattr(getattr(key, "public_blob", None), "key_type", None) or key.get_name()
    names = [name]
    if name.startswith("ssh-rsa"):
        names = [f"{algorithm}{name[7:]}" for algorithm in RSA[:2]]
    if "pubkeyacceptedalgorithms" in lists:
        try:
            choose("pubkeyacceptedalgorithms", lists["pubkeyacceptedalgorithms"], names)
        except SshConfigError:
            return False
    return is_large_enough(config, key)


def is_large_enough(config: HostConfig, key: PKey) -> bool:
    """Whether an RSA key has the RequiredRSASize."""
    least = int(dict(config.algorithms).get("requiredrsasize", "0"))
    return key.get_name() != "ssh-rsa" or key.get_bits() >= least


def _names(name: str) -> list[str]:
    return [name, *(short for short, full in SAME.items() if full == name)]


def _prefer(algorithms: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Host key algorithms, those of known keys first, so that the server shows a known key."""
    first = [name for kind in known for name in (RSA if kind == "ssh-rsa" else (kind,))]
    return tuple(
        sorted(algorithms, key=lambda name: first.index(name) if name in first else len(first))
    )
