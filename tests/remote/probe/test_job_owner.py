"""Who owns a job, by the files of its node."""

from pathlib import Path

import pytest

from nodevet.remote.probe.job_names import login_of, pod_name

PASSWD = """root:x:0:0::/root:/bin/sh
trap:1000:x:0::/:/bin/sh
alice:x:1000:1000:of group 1001:/home/alice:/bin/sh
long:x:10001:1::/:/bin/sh
"""


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(PASSWD)
    for name in ("ml_train-0_6f1d-aa", "kube-system_dns_77", "odd", "a_b_c_d"):
        (tmp_path / "var/log/pods" / name).mkdir(parents=True)
    return str(tmp_path)


def test_a_user_is_named_as_in_passwd(root: str) -> None:
    assert login_of(root, 1000, {"SLURM_JOB_USER": "mallory"}) == "alice"
    assert login_of(root, 0, {}) == "root"


def test_a_user_of_a_directory_service_is_named_as_slurm_names_the_owner(root: str) -> None:
    assert login_of(root, 1001, {"SLURM_JOB_USER": "bob"}) == "bob"
    with pytest.raises(LookupError, match="no name of 1001 in /etc/passwd"):
        login_of(root, 1001, {})


def test_a_pod_is_named_as_kubelet_names_the_folder_of_its_logs(root: str) -> None:
    assert pod_name(root, "pod 6f1d-aa") == "ml/train-0"
    with pytest.raises(LookupError, match="/var/log/pods has no folder of pod 6f1d"):
        pod_name(root, "pod 6f1d")
    with pytest.raises(OSError, match="No such file"):
        pod_name(f"{root}/etc", "pod 6f1d")
