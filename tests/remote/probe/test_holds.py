"""What dnf holds, from its files as `dnf versionlock add` and `dnf5 versionlock add` write them."""

from pathlib import Path

import pytest

from nodevet.remote.probe.holds import holds

LIST = """
# Added lock on Mon Nov  9 10:00:00 2026
kernel-core-0:5.14.0-427.13.1.el9_4.*
nvidia-driver-3:550.90.07-1.el9.x86_64
nccl-2.21.5-1+cuda12.4
datacenter-gpu-manager
docker-ce-3:26.*
0:bash-5.1.8-6.el9.*
podman-0:4.9-1.el9.*
!dkms-0:3.0.12-1.el9.*
"""
TOML = """version = "1.0"
[[packages]]
name = "nvidia-driver"  # a comment
comment = "of the GPUs"
[[packages.conditions]]
key = "evr"
comparator = "="
value = "3:550.90.07-1.fc41"

[[packages]]
name = "dkms"
[[packages.conditions]]
key = "evr"
comparator = "!="
value = "0:3.0-1.fc41"

[[packages]]
name = "cuda*"
[[packages.conditions]]
key = "evr"
comparator = ">="
value = "0:12"

[[packages]]
name = "nccl"
conditions = [{key = "evr", comparator = "=", value = "0:2-1"}]
"""


def node(root: Path, **files: str) -> str:
    for name, text in files.items():
        path = root / {
            "dnf": "usr/bin/dnf",
            "dnf5": "usr/bin/dnf5",
            "main": "etc/dnf/dnf.conf",
            "plugin": "etc/dnf/plugins/versionlock.conf",
            "locks": "etc/dnf/plugins/versionlock.list",
            "toml": "etc/dnf/versionlock.toml",
        }.get(name, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root.resolve())


PLUGIN = "[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n"


def held(root: str, name: str, *versions: str) -> bool | str:
    try:
        found: bool = holds(root).is_held(name, "x86_64", list(versions))
    except ValueError as error:
        return str(error)
    return found


LOOSE = "dnf's version lock admits other versions than the installed: "


@pytest.mark.parametrize(
    ("name", "versions", "found"),
    [
        ("kernel-core", ["5.14.0-427.13.1.el9_4"], True),
        ("kernel-core", ["5.14.0-427.13.1.el9_4", "5.14.0-503.el9"], True),
        ("kernel-core", ["5.14.0-503.el9"], f"{LOOSE}kernel-core-0:5.14.0-427.13.1.el9_4.*"),
        ("nvidia-driver", ["3:550.90.07-1.el9"], True),
        ("nvidia-driver", ["2:550.90.07-1.el9"], f"{LOOSE}nvidia-driver-3:550.90.07-1.el9.x86_64"),
        ("nccl", ["2.21.5-1+cuda12.4"], True),
        ("datacenter-gpu-manager", ["1:3.3-1"], f"{LOOSE}datacenter-gpu-manager"),
        ("docker-ce", ["3:26.1-1"], f"{LOOSE}docker-ce-3:26.*"),
        ("bash", ["5.1.8-6.el9"], True),
        ("dkms", ["3.0.12-1.el9"], False),
        ("podman-docker", ["4.9-1.el9"], False),
        ("dnf", ["4-1"], False),
    ],
)
def test_dnf_4_holds_a_package_that_its_list_allows_in_one_version(
    tmp_path: Path, name: str, versions: list[str], found: bool | str
) -> None:
    assert held(node(tmp_path, dnf="", plugin=PLUGIN, locks=LIST), name, *versions) == found


def test_a_package_of_two_locks_is_held_only_if_both_are_installed(tmp_path: Path) -> None:
    locks = "kernel-0:5.14-427.*\nkernel-0:5.14-503.*\n"
    root = node(tmp_path, dnf="", plugin=PLUGIN, locks=locks)
    assert held(root, "kernel", "5.14-427", "5.14-503") is True
    assert held(root, "kernel", "5.14-427") == f"{LOOSE}kernel-0:5.14-503.*"


@pytest.mark.parametrize(
    ("name", "version", "found"),
    [
        ("nvidia-driver", "3:550.90.07-1.fc41", True),
        ("nvidia-driver", "3:560-1.fc41", f"{LOOSE}nvidia-driver"),
        ("dkms", "3.1-1.fc41", False),
        ("cuda-toolkit", "12.4-1", f"{LOOSE}cuda*"),
        ("nccl", "2-1", f"{LOOSE}nccl"),
        ("bash", "5-1", False),
    ],
)
def test_dnf5_holds_a_package_that_its_file_allows_in_one_version(
    tmp_path: Path, name: str, version: str, found: bool | str
) -> None:
    assert held(node(tmp_path, dnf="", dnf5="", toml=TOML), name, version) == found


@pytest.mark.parametrize(("target", "found"), [("dnf-3", False), ("dnf5", True)])
def test_locks_of_the_version_to_which_dnf_links_count(
    tmp_path: Path, target: str, found: bool
) -> None:
    root = node(tmp_path, dnf5="", toml=TOML)
    Path(root, "usr/bin/dnf-3").touch()
    Path(root, "usr/bin/dnf").symlink_to(target)
    assert held(root, "nvidia-driver", "3:550.90.07-1.fc41") is found


@pytest.mark.parametrize("files", [{"dnf": ""}, {"dnf5": ""}])
def test_what_dnf_excludes_is_held(tmp_path: Path, files: dict[str, str]) -> None:
    root = node(tmp_path, **files, main="[main]\nexclude=nvidia* cuda*,\n  dkms\n")
    assert held(root, "nvidia-driver", "1-1") is held(root, "dkms", "1-1") is True
    assert held(root, "bash", "1-1") is False


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"dnf": "", "locks": LIST}, False),  # the plugin is not installed
        ({"dnf": "", "locks": LIST, "plugin": PLUGIN.replace("1", "0")}, False),
        ({"dnf": "", "locks": LIST, "plugin": PLUGIN, "main": "[main]\nplugins=0\n"}, False),
        (
            {"plugin": PLUGIN, "locks": LIST},
            "there is no dnf: nodevet reads no other holds",
        ),
        ({"dnf": "", "main": "exclude=a"}, "/etc/dnf/dnf.conf: not an INI file"),
        (
            {"dnf": "", "main": "[main]\n", "plugin": "["},
            "/etc/dnf/plugins/versionlock.conf: not an INI file",
        ),
    ],
)
def test_a_versionlock_list_that_dnf_does_not_read_holds_nothing(
    tmp_path: Path, files: dict[str, str], found: bool | str
) -> None:
    assert held(node(tmp_path, **files), "bash", "5.1.8-6.el9") == found


SHARE, ETC = "usr/share/dnf5/libdnf.conf.d", "etc/dnf/libdnf5.conf.d"
SHARED, OWN = "usr/share/dnf5/repos.override.d", "etc/dnf/repos.override.d"
PARTLY = "only some repositories exclude it, or only some of its versions: "
REPOS = {"etc/yum.repos.d/cuda.repo": "[cuda]\n", "etc/distro.repos.d/os.repo": "[os]\nenabled=1\n"}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({f"{SHARE}/50-a.conf": "[main]\nexcludepkgs=nvidia*\n"}, True),
        ({f"{ETC}/50-a.conf": "[main]\nexclude=nvidia*\n"}, True),
        ({f"{ETC}/50-a.conf.rpmsave": "[main]\nexclude=nvidia*\n"}, False),
        ({f"{SHARE}/5.conf": "[main]\nexclude=nvidia*\n", f"{ETC}/5.conf": "[main]\n"}, False),
        ({f"{SHARE}/5.conf": "[main]\nexclude=nvidia*\n", "main": "[main]\nexclude=b\n"}, True),
        ({f"{ETC}/5.conf": "[main]\nexclude=nvidia*\n", "main": "[main]\nexclude=,b\n"}, False),
        ({f"{ETC}/5.conf": "[main]\nexclude=nvidia*\n", "main": "[main]\nexclude=\n"}, False),
        ({f"{OWN}/9.repo": "[*]\nexcludepkgs=nvidia*\n"}, True),
        ({f"{SHARED}/9.repo": "[*]\nexcludepkgs=b nvidia*\n"}, True),
        ({f"{SHARED}/9.repo": "[*]\nexclude=nvidia*\n", f"{OWN}/9.repo": "[*]\n"}, False),
        ({f"{OWN}/9.repo": "[cuda*]\nexcludepkgs=nvidia*\n"}, f"{PARTLY}cuda"),
        ({f"{OWN}/9.repo": "[cuda]\nexclude=nvidia*\n[os]\nenabled=0\n"}, True),
        ({f"{OWN}/9.repo": "[*]\nexclude=nvidia*\n[cuda]\nexclude=\n"}, f"{PARTLY}os"),
        ({f"{OWN}/9.repo": "[cuda]\nexclude=nvidia*\n[*]\nexclude=\n"}, False),
        ({f"{ETC}/5.conf": "exclude"}, "/etc/dnf/libdnf5.conf.d/5.conf: not an INI file"),
    ],
)
def test_dnf5_reads_drop_in_files_and_overrides_of_repositories(
    tmp_path: Path, files: dict[str, str], found: bool | str
) -> None:
    """In the order of dnf5.conf(5): by name, /etc in place of /usr, and dnf.conf last."""
    assert held(node(tmp_path, dnf5="", **REPOS, **files), "nvidia-driver", "1-1") == found


@pytest.mark.parametrize(
    ("words", "found"),
    [("*", False), ("main", f"{PARTLY}os"), ("main, o*", False), ("all", True), ("m*", True)],
)
def test_dnf5_disables_excludes_by_globs(tmp_path: Path, words: str, found: bool | str) -> None:
    main = f"[main]\nexclude=nvidia*\ndisable_excludes={words}\n"
    files = {"main": main, f"{OWN}/9.repo": "[os]\nexclude=nvidia*\n"}
    assert held(node(tmp_path, dnf5="", **REPOS, **files), "nvidia-driver", "1-1") == found


CUDA, EPEL = "etc/yum.repos.d/cuda.repo", "etc/yum.repos.d/epel.repo"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({CUDA: "[cuda]\nexclude=nvidia*\n"}, True),
        ({CUDA: "[cuda]\nincludepkgs=dkms\n"}, True),
        ({CUDA: "[cuda]\nincludepkgs=dkms nvidia-driver-1*\n"}, f"{PARTLY}cuda"),
        ({CUDA: "[cuda]\nincludepkgs=*-devel nvidia-*\n"}, False),
        ({CUDA: "[cuda]\nexclude=nvidia*\nincludepkgs=nvidia*\n"}, True),
        ({CUDA: "[cuda]\nexclude=nvidia*\n", EPEL: "[epel]\n"}, f"{PARTLY}cuda"),
        ({CUDA: "[cuda]\nexclude=nvidia*\n", EPEL: "[epel]\nenabled = 0\n"}, True),
        ({CUDA: "[cuda]\n", EPEL: "[epel]\nexclude=nvidia*\nenabled=no\n"}, False),
        ({CUDA: "[cuda]\n[cuda]\n", EPEL: "[cuda]\nexclude=nvidia*\n"}, False),
        ({f"{CUDA}.rpmsave": "[cuda]\nexclude=nvidia*\n", EPEL: "[epel]\n"}, False),
        ({CUDA: "[cuda]\n", "main": "[main]\nincludepkgs=kernel*\n"}, True),
        ({CUDA: "[cuda]\nincludepkgs=nv*\n", "main": "[main]\nincludepkgs=k*\n"}, True),
        ({CUDA: "[cuda]\nincludepkgs=k*\n", "main": "[main]\nincludepkgs=nv*\n"}, False),
        ({"main": "[main]\nincludepkgs=kernel*\n"}, True),
        ({"main": "[main]\n[cuda]\nexclude=nvidia*\n"}, True),
        ({"srv/a.repo": "[a]\nexclude=nvidia*\n", "main": "[main]\nreposdir=/srv\n"}, True),
        ({CUDA: "exclude=nvidia*"}, f"/{CUDA}: not an INI file"),
        ({CUDA: "exclude", "main": "[main]\nexclude=nvidia*\n"}, True),
        ({"main": "[main]\nexclude=nvidia*\ndisable_excludes=main\n"}, False),
        ({"main": "[main]\nexclude=nvidia*\ndisable_excludes=all\n"}, False),
        ({"main": "[main]\nincludepkgs=kernel*\ndisable_excludes=cuda, main\n"}, False),
        ({"main": "[main]\ndisable_excludes=cuda\n", CUDA: "[cuda]\nexclude=n*\n"}, False),
        ({"main": "[main]\ndisable_excludes=c*\n", CUDA: "[cuda]\nexclude=n*\n"}, True),
        ({"main": "[main]\nexclude=nvidia*\nexcludepkgs=\n"}, False),
        ({"main": "[main]\nexcludepkgs=\nexclude=nvidia*\n"}, True),
    ],
)
def test_dnf_4_reads_the_lists_of_its_repositories(
    tmp_path: Path, files: dict[str, str], found: bool | str
) -> None:
    assert held(node(tmp_path, dnf="", **files), "nvidia-driver", "1-1") == found


def test_dnf_4_reads_no_file_of_dnf5(tmp_path: Path) -> None:
    root = node(tmp_path, dnf="", **{f"{ETC}/5.conf": "[main]\nexclude=nvidia*\n"})
    assert held(root, "nvidia-driver", "1-1") is False


@pytest.mark.parametrize("version", ["", 'version = "2.0"\n'])
def test_dnf5_applies_no_lock_of_another_version_of_the_file(tmp_path: Path, version: str) -> None:
    text = TOML.replace('version = "1.0"\n', version)
    assert held(node(tmp_path, dnf5="", toml=text), "nvidia-driver", "3:1-1") is False


def test_dnf5_locks_nothing_without_conditions(tmp_path: Path) -> None:
    toml = 'version = "1.0"\n[[packages]]\nname = "nccl"\n'
    assert held(node(tmp_path, dnf5="", toml=toml), "nccl", "2-1") is False


@pytest.mark.parametrize(
    "row", ['name = ["dkms"]', 'name = "dkms"\n[[packages.conditions]]\nkey = []']
)
def test_a_list_where_dnf_expects_one_value_is_refused(tmp_path: Path, row: str) -> None:
    with pytest.raises(ValueError, match="a list where one value is expected"):
        holds(node(tmp_path, dnf5="", toml="[[packages]]\n" + row))
