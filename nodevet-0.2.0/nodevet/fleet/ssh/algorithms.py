"""Ciphers, MACs, KexAlgorithms and the like of ssh_config(5). Shard process only.

They choose among libssh's algorithms. Without them nodevet offers what ssh offers, as far as libssh
has it; AES-GCM comes first, since processors of nodes have instructions for it.
"""

from collections.abc import Sequence

from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.host_config import HostConfig
from nodevet.fleet.ssh.public_key import PublicKey
from nodevet.fleet.ssh.words import is_listed

RSA = ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa")
CIPHERS = (
    "aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com",
    "aes256-ctr", "aes192-ctr", "aes128-ctr",
)  # fmt: skip
MACS = (
    "hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com",
    "hmac-sha2-256", "hmac-sha2-512", "hmac-sha1-etm@openssh.com", "hmac-sha1",
)  # fmt: skip
KEX = (
    "curve25519-sha256", "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256", "ecdh-sha2-nistp384", "ecdh-sha2-nistp521",
    "diffie-hellman-group18-sha512", "diffie-hellman-group16-sha512",
    "diffie-hellman-group-exchange-sha256", "diffie-hellman-group14-sha256",
)  # fmt: skip
HOST_KEYS = (
    "ssh-ed25519", "ecdsa-sha2-nistp521", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp256",
    "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
    "rsa-sha2-512", "rsa-sha2-256",
)  # fmt: skip
OLD = {
    "ciphers": ("aes256-cbc", "aes192-cbc", "aes128-cbc"),
    "kexalgorithms": ("diffie-hellman-group14-sha1",),
    "hostkeyalgorithms": ("ssh-rsa",),
}
"""libssh's algorithms that it uses, as ssh does, only if ssh_config names them."""

FIELDS = {
    "ciphers": (CIPHERS, ("CIPHERS_C_S", "CIPHERS_S_C")),
    "macs": (MACS, ("HMAC_C_S", "HMAC_S_C")),
    "kexalgorithms": (KEX, ("KEY_EXCHANGE",)),
    "hostkeyalgorithms": (HOST_KEYS, ("HOSTKEYS",)),
}
"""By keyword: libssh's other algorithms, and its options (SSH_OPTIONS_...)."""


def settings(config: HostConfig, known: Sequence[str]) -> dict[str, str]:
    """libssh's options: only algorithms that the user allows, and first key types that are known.

    Raises SshConfigError if nothing remains.
    """
    lists = dict(config.algorithms)
    options: dict[str, str] = {}
    for keyword, (offered, names) in FIELDS.items():
        algorithms: Sequence[str] = offered
        if keyword in lists:
            algorithms = choose(keyword, lists[keyword], offered, OLD.get(keyword, ()))
        if keyword == "hostkeyalgorithms" and lists.get(keyword, "+")[0] in "+-":
            algorithms = _prefer(algorithms, known)  # else the order is the user's
        options |= dict.fromkeys(names, ",".join(algorithms))
    return options


def choose(
    keyword: str, choice: str, offered: Sequence[str], more: Sequence[str] = ()
) -> tuple[str, ...]:
    """The algorithms by the user's list: `a,b` only these, `+a` also these, `-a*`, `^a` first.

    `more`: those that are offered only if the list names them. Raises SshConfigError if none is
    left.
    """
    sign, names = (choice[0], choice[1:]) if choice[0] in "+-^" else ("", choice)
    selected = [name for name in names.split(",") if name in (*offered, *more)]
    if sign == "+":
        result = [*offered, *selected]
    elif sign == "-":
        patterns = names.split(",")
        result = [algorithm for algorithm in offered if not is_listed(algorithm, patterns)]
    else:
        result = [*selected, *(offered if sign else ())]
    if not result:
        raise SshConfigError(f"ssh_config: {keyword} {choice}: nodevet has none of these")
    return tuple(dict.fromkeys(result))


def is_allowed(config: HostConfig, key: PublicKey) -> bool:
    """Whether ssh_config allows a key of this type and size."""
    lists = dict(config.algorithms)
    names = [key.type]
    if key.type.startswith("ssh-rsa"):
        names = [f"{algorithm}{key.type[7:]}" for algorithm in RSA[:2]]
    if "pubkeyacceptedalgorithms" in lists:
        try:
            choose("pubkeyacceptedalgorithms", lists["pubkeyacceptedalgorithms"], names)
        except SshConfigError:
            return False
    return is_large_enough(config, key)


def is_large_enough(config: HostConfig, key: PublicKey) -> bool:
    """Whether an RSA key has the RequiredRSASize."""
    least = int(dict(config.algorithms).get("requiredrsasize", "0"))
    return key.rsa_bits is None or key.rsa_bits >= least


def _prefer(algorithms: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Host key algorithms, those of known keys first, so that the server shows a known key."""
    first = [name for kind in known for name in (RSA if kind == "ssh-rsa" else (kind,))]
    return tuple(
        sorted(algorithms, key=lambda name: first.index(name) if name in first else len(first))
    )
