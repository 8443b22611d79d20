"""nodevet on a simulated node's own disk, in a virtual environment of the node's Python, so that
it is there when the node boots."""

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from shown_folders import REPO, leader

from simulated_fleet import SimulatedFleet

PLACE = "opt/nodevet"
PROGRAM = f"/{PLACE}/bin/nodevet"
NODES_PYTHON = Path("/usr/bin/python3")  # a node has this machine's
SCRIPT = f"""\
#!/{PLACE}/bin/python3
import sys
from nodevet.__main__ import main
sys.exit(main())
"""
LIBRARIES = (  # what a gate of @local imports
    *("click", "msgspec", "yaml", "_yaml", "typing_extensions.py", "markupsafe", "jinja2"),
    *("packaging", "ClusterShell", "rich", "pygments", "markdown_it", "mdurl", "pynvml.py"),
)
SKIPPED = shutil.ignore_patterns("__pycache__", "tests")


def put_on_disk(fleet: SimulatedFleet, node: str) -> None:
    """Make /opt/nodevet on a node; the test is skipped if compiled libraries do not fit its
    Python."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if NODES_PYTHON.resolve().name != version:
        pytest.skip(f"nodes have {NODES_PYTHON.resolve().name}, the tests run in {version}")
    top = Path("/proc", str(leader(fleet.name, node)), "root", PLACE)
    packages = top / "lib" / version / "site-packages"
    for name in LIBRARIES:
        _copy(Path(sysconfig.get_path("purelib"), name), packages / name)
    _copy(REPO / "nodevet", packages / "nodevet")
    for name in ("baselines", "checks", "fixes"):  # where the wheel has them
        _copy(REPO / name, packages / "nodevet" / name)
    (top / "bin").mkdir()
    (top / "bin" / "python3").symlink_to(NODES_PYTHON)
    (top / "bin" / "nodevet").write_text(SCRIPT)
    (top / "bin" / "nodevet").chmod(0o755)
    (top / "pyvenv.cfg").write_text("home = /usr/bin\n")
    compiling = f"{PROGRAM.replace('nodevet', 'python3')} -m compileall -q /{PLACE}/lib"
    fleet.run_on(node, compiling.replace("/opt/python3", "/opt/nodevet"))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=SKIPPED)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
