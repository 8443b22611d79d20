"""Actions of apt for new versions of the driver's packages."""

from collections.abc import Sequence

from nodevet.fixing.driver_packages import Target
from nodevet.resource import Actions
from nodevet.resource.package.apt import install, mark


def actions(targets: Sequence[Target], *, down: bool, change_held: bool) -> Actions:
    """One transaction for all packages, then their marks. `down`: whether some packages get a lower
    version."""
    names = [target.name for target in targets]
    options = (
        "--no-remove",
        *(["--allow-downgrades"] if down else []),
        *(["--allow-change-held-packages"] if change_held else []),
        *("-o", "DPkg::Tools::Options::while::Version=2"),
        *("-o", f"DPkg::Pre-Install-Pkgs::={only(names)}"),
    )
    return (
        install([f"{target.name}={target.version}" for target in targets], *options),
        *mark("auto", [target.name for target in targets if target.automatic]),
        *mark("hold", names),
    )


def only(names: Sequence[str]) -> str:
    """A hook that stops apt before it changes anything, if it would change any other package.

    Its input says what apt is about to do: apt's configuration, an empty line, and a line for each
    package that begins with its name (DPkg::Pre-Install-Pkgs of apt.conf(5), version 2).
    """
    known_names = " ".join(dict.fromkeys(name.partition(":")[0] for name in names))
    return (
        'while read -r line && [ -n "$line" ]; do :; done; '
        f'while read -r name rest; do case " {known_names} " in *" $name "*) ;; '
        '*) echo "nodevet: $name would change too, and is not in the plan" >&2; exit 1 ;; '
        "esac; done"
    )
