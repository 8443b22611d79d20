"""The keywords of ssh_config(5), and how nodevet reads each. Pure.

nodevet reads those in FOLLOWED as ssh does. The others in KNOWN do not decide which machine is
reached, by which way, as which user, or how it is recognised: sessions, terminals, forwarding,
multiplexing, authentication other than by keys, time limits, logging.
"""

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass

from nodevet.fleet.ssh.words import BLANKS, WordError, hops, variables

MOST_FILES = 32  # SSH_MAX_HOSTS_FILES


@dataclass(frozen=True)
class KeywordKind:
    """How to read the arguments of a keyword, and whether later lines add to earlier ones."""

    read: Callable[[tuple[str, ...], str], tuple[str, ...]]
    adds: bool = False


def _single_argument(words: tuple[str, ...], rest: str) -> tuple[str, ...]:
    if not words or not words[0]:
        raise WordError("an argument is missing")
    if len(words) > 1:
        raise WordError(f"more than one argument: {' '.join(words)}")
    return words


def _choice(*choices: str) -> Callable[[tuple[str, ...], str], tuple[str, ...]]:
    same = {"true": "yes", "false": "no", "off": "no"}

    def read(words: tuple[str, ...], rest: str) -> tuple[str, ...]:
        word = _single_argument(words, rest)[0].lower()
        if word not in choices and same.get(word) not in choices:
            raise WordError(f"{words[0]} is not one of {', '.join(choices)}")
        return (same.get(word, word),)

    return read


def _port(words: tuple[str, ...], rest: str) -> tuple[str, ...]:
    """A number, or the name of a service."""
    word = _single_argument(words, rest)[0]
    try:
        number = word.isdecimal() and word.isascii()
        port = int(word) if number else socket.getservbyname(word, "tcp")
    except OSError:
        port = 0
    if not 0 < port < 65536:
        raise WordError(f"port is {word!r}; it must be 1 to 65535")
    return (str(port),)


def _number(words: tuple[str, ...], rest: str) -> tuple[str, ...]:
    word = _single_argument(words, rest)[0]
    if not (word.isdecimal() and word.isascii()):
        raise WordError(f"{word} is not a number")
    return (word,)


def _several_arguments(words: tuple[str, ...], rest: str) -> tuple[str, ...]:
    if not all(words) or len(words) > MOST_FILES:
        raise WordError(f"an empty argument, or more than {MOST_FILES}")
    if len(words) > 1 and any(word.lower() == "none" for word in words):
        raise WordError("none must stand alone")
    return words


def _line(words: tuple[str, ...], rest: str) -> tuple[str, ...]:
    return (rest.lstrip(BLANKS + "="),)


def _jump(words: tuple[str, ...], rest: str) -> tuple[str, ...]:
    text = rest.lstrip(BLANKS + "=")
    hops(text)
    return (text,)


def _agent(words: tuple[str, ...], rest: str) -> tuple[str, ...]:
    word = _single_argument(words, rest)[0]
    variables(word)
    if re.match(r"\$(?!\{)", word) and not re.fullmatch(r"\$\w+", word, re.ASCII):
        raise WordError(f"invalid environment name {word}")
    return (word,)


ONE, FLAG, SEVERAL, LINE = (
    KeywordKind(_single_argument),
    KeywordKind(_choice("yes", "no")),
    KeywordKind(_several_arguments),
    KeywordKind(_line),
)

FOLLOWED = {
    "addressfamily": KeywordKind(_choice("inet", "inet6", "any")),
    "bindaddress": ONE,
    "bindinterface": ONE,
    "canonicaldomains": SEVERAL,
    "canonicalizefallbacklocal": FLAG,
    "canonicalizehostname": KeywordKind(_choice("yes", "no", "always")),
    "canonicalizemaxdots": KeywordKind(_number),
    "canonicalizepermittedcnames": SEVERAL,
    "certificatefile": KeywordKind(_single_argument, adds=True),
    "checkhostip": FLAG,
    "ciphers": ONE,
    "globalknownhostsfile": SEVERAL,
    "hashknownhosts": FLAG,
    "hostkeyalgorithms": ONE,
    "hostkeyalias": ONE,
    "hostname": ONE,
    "identitiesonly": FLAG,
    "identityagent": KeywordKind(_agent),
    "identityfile": KeywordKind(_single_argument, adds=True),
    "kexalgorithms": ONE,
    "knownhostscommand": LINE,
    "macs": ONE,
    "port": KeywordKind(_port),
    "proxycommand": LINE,
    "proxyjump": KeywordKind(_jump),
    "proxyusefdpass": FLAG,
    "pubkeyacceptedalgorithms": ONE,
    "pubkeyauthentication": KeywordKind(_choice("yes", "no", "unbound", "host-bound")),
    "refuseconnection": LINE,
    "requiredrsasize": KeywordKind(_number),
    "revokedhostkeys": ONE,
    "stricthostkeychecking": KeywordKind(_choice("yes", "no", "ask", "accept-new")),
    "user": ONE,
    "userknownhostsfile": SEVERAL,
}

ALIASES = {
    "dsaauthentication": "pubkeyauthentication",
    "identityfile2": "identityfile",
    "pubkeyacceptedkeytypes": "pubkeyacceptedalgorithms",
    "rsaminsize": "requiredrsasize",
}

_OTHERS = """
    addkeystoagent afstokenpassing batchmode casignaturealgorithms challengeresponseauthentication
    channeltimeout cipher clearallforwardings compression compressionlevel connectionattempts
    connecttimeout controlmaster controlpath controlpersist dynamicforward enableescapecommandline
    enablesshkeysign escapechar exitonforwardfailure fallbacktorsh fingerprinthash
    forkafterauthentication forwardagent forwardx11 forwardx11timeout forwardx11trusted
    gatewayports globalknownhostsfile2 gssapiauthentication gssapiclientidentity
    gssapidelegatecredentials gssapikexalgorithms gssapikeyexchange gssapirenewalforcesrekey
    gssapiserveridentity gssapitrustdns hostbasedacceptedalgorithms hostbasedauthentication
    hostbasedkeytypes ipqos kbdinteractiveauthentication kbdinteractivedevices keepalive
    kerberosauthentication kerberostgtpassing localcommand localforward logfacility loglevel
    logverbose nohostauthenticationforlocalhost numberofpasswordprompts obscurekeystroketiming
    passwordauthentication permitlocalcommand permitremoteopen pkcs11provider
    preferredauthentications protocol protocolkeepalives rekeylimit remotecommand remoteforward
    requesttty rhostsauthentication rhostsrsaauthentication rsaauthentication securitykeyprovider
    sendenv serveralivecountmax serveraliveinterval sessiontype setenv setuptimeout
    skeyauthentication smartcarddevice stdinnull streamlocalbindmask streamlocalbindunlink
    syslogfacility tag tcpkeepalive tisauthentication tunnel tunneldevice updatehostkeys
    useblacklistedkeys usekeychain useprivilegedport userknownhostsfile2 useroaming usersh
    verifyhostkeydns versionaddendum visualhostkey warnweakcrypto xauthlocation
"""
KNOWN = frozenset(_OTHERS.split())
