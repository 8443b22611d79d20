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
    )
    return (
        install([f"{target.name}={target.version}" for target in targets], *options),
        *mark("auto", [target.name for target in targets if target.automatic]),
        *mark("hold", names),
    )
