"""Build the Debian package or the RPM package of nodevet, from pinned wheels and without a network.

.venv/bin/python packages/build.py deb|rpm WHEELS FOLDER

WHEELS has nodevet's wheel and, from `packages/wheels.py`, those that it needs. The package is for
the Python of this program, by its minor version, and for this machine's architecture. Two builds
of the same sources at the same SOURCE_DATE_EPOCH, by default the time of the commit, are equal,
byte for byte.
"""

import compileall
import os
import platform
import py_compile
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from hashlib import md5
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile

from nodevet import __version__
from nodevet.vet.gate_unit import NAME as GATE
from nodevet.vet.gate_unit import GateUnit
from nodevet.vet.use import units

HERE = Path(__file__).parent
HOME = "/usr/lib/nodevet"
PYTHON = f"python3.{sys.version_info.minor}"
SITE = f"{HOME}/lib/{PYTHON}/site-packages"
UNITS = "usr/lib/systemd/system"
CONFIG = "/etc/nodevet"
DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
ZSH = "usr/share/zsh/site-functions", "usr/share/zsh/vendor-completions"  # and as Debian has it


def main() -> int:
    match sys.argv[1:]:
        case [("deb" | "rpm") as kind, wheels, folder]:
            os.umask(0o022)
            os.environ.setdefault("SOURCE_DATE_EPOCH", time_of_commit())
            with TemporaryDirectory(prefix="nodevet-") as work:
                root = Path(work, "root")
                fill(root, sorted(Path(wheels).glob("*.whl")))
                Path(folder).mkdir(parents=True, exist_ok=True)
                build = deb if kind == "deb" else rpm
                sys.stdout.write(f"{build(root, fields(Path(wheels)), Path(folder))}\n")
            return 0
    sys.stderr.write("usage: build.py deb|rpm WHEELS FOLDER\n")
    return 2


def time_of_commit() -> str:
    """In seconds since 1970; 1 outside of a clone."""
    words = ("git", "-C", str(HERE), "log", "-1", "--format=%ct")
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or "1"


def fill(root: Path, wheels: list[Path]) -> None:
    """Write every file that both packages install."""
    for wheel in wheels:
        own = wheel.name.startswith("nodevet-")
        unpack(wheel, root, data="/usr" if own else HOME)
    virtual_environment(root)
    compileall.compile_dir(
        root / SITE[1:],
        quiet=1,
        stripdir=str(root),
        prependdir="/",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    link(root / "usr/bin/nodevet", f"{HOME}/bin/nodevet")
    for source in (HERE / "etc").iterdir():
        write(root / CONFIG[1:] / source.name, source.read_text(encoding="utf-8"))
    for name, text in unit_files():
        write(root / UNITS / name, text)
    (root / "var/lib/nodevet").mkdir(parents=True)


def unpack(wheel: Path, root: Path, *, data: str) -> None:
    """Install one wheel, whose scripts start the package's own Python."""
    schemes = {"purelib": SITE, "platlib": SITE, "scripts": f"{HOME}/bin", "data": data}
    schemes["headers"] = f"{HOME}/include"
    into = SchemeDictionaryDestination(
        schemes, interpreter=f"{HOME}/bin/python3", script_kind="posix", destdir=str(root)
    )
    with WheelFile.open(wheel) as source:
        install(source, into, {"INSTALLER": b"nodevet's package\n"})


def virtual_environment(root: Path) -> None:
    """Make a virtual environment of what is installed. It names one minor version of Python: an
    upgrade of the system's python3 changes nothing."""
    link(root / HOME[1:] / "bin/python3", f"/usr/bin/{PYTHON}")
    version = PYTHON.removeprefix("python")
    text = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n"
    write(root / HOME[1:] / "pyvenv.cfg", text)


def unit_files() -> Iterator[tuple[str, str]]:
    """The units, which nobody enables but the site."""
    program = ("/usr/bin/nodevet",)
    gate = GateUnit(
        program=program, baselines=(f"{CONFIG}/gate.yaml",), wait=600, settle=30, fail_on="warning"
    )
    yield f"{GATE}.service", gate.text()
    service = units.service(
        "%i", program, Path(CONFIG, "nodevet.toml"), user="nodevet", within=None,
        state="/var/lib/nodevet/state",
    )  # fmt: skip
    yield "nodevet-sweep@.service", service.replace("%%i", "%i").replace("sweep-%i.", "sweep@.")
    timer = units.timer("%i", at="02:30", jitter="10m")
    yield "nodevet-sweep@.timer", timer.replace("sweep-%i.", "sweep@.")


def fields(wheels: Path) -> Mapping[str, str]:
    """What the descriptions of the packages name."""
    names = [path.name for path in wheels.glob("*.whl")]
    oldest = [min(map(int, found)) for n in names if (found := re.findall(r"manylinux_2_(\d+)", n))]
    return {
        "version": re.sub(r"\.?(dev|a|b|rc)", r"~\1", __version__),
        "release": f"1.py3{sys.version_info.minor}",
        "python": PYTHON,
        "glibc": f"2.{max(oldest, default=17)}",
        "machine": platform.machine(),
        "debian_machine": DEBIAN_ARCHITECTURES[platform.machine()],
    }


def deb(root: Path, named: Mapping[str, str], folder: Path) -> Path:
    """The path of the Debian package."""
    debian_zsh = root / ZSH[1]
    debian_zsh.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(root / ZSH[0], debian_zsh)
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    sums = (  # as dpkg --verify reads them
        f"{md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(root)}\n"
        for path in files
    )
    size = sum(path.stat().st_size for path in files) // 1024
    for source in (HERE / "deb").iterdir():
        text = source.read_text(encoding="utf-8")
        if source.name == "control":
            text = Template(text).substitute(named, size=size)
        write(root / "DEBIAN" / source.name, text, 0o644 if source.name == "control" else 0o755)
    names = sorted(path.name for path in (root / CONFIG[1:]).iterdir())
    write(root / "DEBIAN/conffiles", "".join(f"{CONFIG}/{name}\n" for name in names))
    write(root / "DEBIAN/md5sums", "".join(sums))
    name = "nodevet_{version}-{release}_{debian_machine}.deb".format(**named)
    # each Debian and Ubuntu with Python 3.10 or newer unpacks zstd
    call("dpkg-deb", "--root-owner-group", "-Zzstd", "-z9", "--build", root, folder / name)
    return folder / name


def rpm(root: Path, named: Mapping[str, str], folder: Path) -> Path:
    """The path of the RPM package."""
    top = root.parent / "rpm"
    spec = Template((HERE / "nodevet.spec").read_text(encoding="utf-8"))
    write(top / "nodevet.spec", spec.substitute(named, root=root))
    call("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {top}", top / "nodevet.spec")
    (built,) = (top / "RPMS").rglob("*.rpm")
    return Path(shutil.copy(built, folder))


def call(*words: str | Path) -> None:
    subprocess.run([*map(str, words)], check=True, stdout=subprocess.DEVNULL)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


if __name__ == "__main__":
    sys.exit(main())
