"""What visits hosts, by nodevet.toml: launchers, sites, the address of a pool."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from nodevet.base.errors import UserError
from nodevet.base.printable import brief
from nodevet.model import Host
from nodevet.settings import SiteSettings, settings
from nodevet.settings.model import LauncherSettings

if TYPE_CHECKING:  # a run of this machine alone does not pay for it
    from nodevet.fleet.launchers import Engine, Launcher

DASK = "dask://"
TLS = "tls://"


def engine(
    address: str | None,
    launchers: Mapping[str, str | Mapping[str, str]],
    sites: Mapping[str, Sequence[str]],
) -> "Engine | None":
    """None if this machine visits the hosts. Raises UserError.

    A launcher is its command, or a mapping of `command`, `ssh_config`, `known_hosts` and
    `key_file`; `address` is `local`, `dask://HOST:PORT` or `tls://HOST:PORT`.
    """
    from nodevet.fleet.launchers import DaskPool, Launchers

    sites_of_names = {site: tuple(names) for site, names in sites.items()}
    try:
        if address in (None, "local"):
            if not launchers:
                if sites_of_names:
                    raise ValueError("sites are given, and no launcher")
                return None
            named = tuple(_launcher(name, settings_of) for name, settings_of in launchers.items())
            return Launchers(named, sites_of_names)
        if launchers:
            raise ValueError("launchers and a Dask pool cannot be used together")
        return DaskPool(_address(address or ""), sites_of_names)
    except ValueError as error:
        raise UserError(str(error)) from error


def site_engine(site: SiteSettings) -> "Engine | None":
    """What visits hosts by nodevet.toml; None: this machine. Raises UserError."""
    settings = site.settings
    launchers = {
        name: _command_of(launcher) if isinstance(launcher, LauncherSettings) else launcher
        for name, launcher in settings.launchers.items()
    }
    sites = {
        group: (names,) if isinstance(names, str) else names
        for group, names in settings.sites.items()
    }
    try:
        return engine(settings.engine, launchers, sites)
    except UserError as error:
        raise UserError(f"{site.file}: {error}") from error


def engine_for(hosts: Sequence[Host]) -> "Engine | None":
    """What visits these hosts by the nodevet.toml here or above. Raises UserError."""
    return None if all(host.local for host in hosts) else site_engine(settings())


def _command_of(launcher: LauncherSettings) -> Mapping[str, str]:
    return {key: value for key, value in structs.asdict(launcher).items() if value is not None}


def _launcher(name: str, settings_of: str | Mapping[str, str]) -> "Launcher":
    from nodevet.fleet.launchers import launcher

    if isinstance(settings_of, str):
        return launcher(name, settings_of)
    known = {"command", "ssh_config", "known_hosts", "key_file"}
    if strange := sorted(set(settings_of) - known):
        raise ValueError(f"launcher {name}: unknown {strange[0]!r}; known are {sorted(known)}")
    return launcher(
        name,
        settings_of.get("command", ""),
        **{k: settings_of[k] for k in settings_of if k != "command"},
    )


def _address(text: str) -> str:
    """The form that Dask uses."""
    scheme = next((one for one in (DASK, TLS) if text.startswith(one)), None)
    host, _, port = text.removeprefix(scheme or "").rpartition(":")
    if scheme is None or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(
            f"not a valid engine: {brief(text, 80) or 'empty'}; {_address_advice(text)}"
        )
    return f"{'tls' if scheme == TLS else 'tcp'}://{host}:{port}"


def _address_advice(text: str) -> str:
    """What to type instead of an address without a scheme, or with the scheme of Dask."""
    host, colon, port = text.removeprefix("tcp://").rpartition(":")
    is_plain = colon and host and port.isdigit() and "/" not in host
    return f"type {DASK}{host}:{port}" if is_plain else f"type {DASK}HOST:PORT or {TLS}HOST:PORT"
