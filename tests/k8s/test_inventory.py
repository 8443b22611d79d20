"""`-i k8s:` with the real client, on a stand-in for the API server."""

from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kubernetes_api import TOKEN, ApiServer, api_server

from nodevet.base.errors import UserError
from nodevet.diagnose.jobs import asked_again, find_job, hosts_of
from nodevet.inventory import InventoryError, read
from nodevet.inventory.cluster import Cluster, ClusterError, connect
from nodevet.model import Host
from nodevet.vet.use.targets import Targets

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.present": "true"}


def add_node(api: ApiServer, name: str, address: str = "", **labels: str) -> None:
    named = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    addresses = [{"type": "Hostname", "address": name}]
    addresses += [{"type": "InternalIP", "address": address}] if address else []
    api.add("nodes", name, metadata={"labels": named}, status={"addresses": addresses})


def hosts(*inventories: str, limit: tuple[str, ...] = ()) -> dict[str, Host]:
    return {host.name: host for host in read((), inventories=inventories, limit=limit)}


def test_nodes_have_addresses_and_the_groups_of_their_labels(api: ApiServer) -> None:
    api.add(
        "nodes",
        "gpu1",
        metadata={
            "labels": {
                **H100,
                "node.kubernetes.io/instance-type": "p5.48xlarge",
                "topology.kubernetes.io/zone": "us-east-1a",
                "eks.amazonaws.com/nodegroup": "gpu-a",
            }
        },
        status={
            "addresses": [
                {"type": "ExternalIP", "address": "203.0.113.1"},
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "InternalIP", "address": "fd00::1"},
            ]
        },
    )
    add_node(api, "cpu1", "10.0.0.9")
    add_node(api, "gpu2")
    found = hosts("k8s:")
    assert found["gpu1"].address == "10.0.0.1"
    assert found["gpu1"].groups == {
        "product:NVIDIA-H100-80GB-HBM3",
        "type:p5.48xlarge",
        "zone:us-east-1a",
        "pool:gpu-a",
    }
    assert found["gpu2"].address is None  # reached by its name
    assert set(hosts("k8s:", limit=("@zone:us-east-1a",))) == {"gpu1"}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("nvidia.com/gpu.present=true", "gpu1 gpu2"),
        ("nvidia.com/gpu.present=true,topology.kubernetes.io/zone!=b", "gpu1"),
        ("topology.kubernetes.io/zone in (a, b)", "gpu1 gpu2"),
        ("!nvidia.com/gpu.present", "cpu1"),
    ],
)
def test_a_label_selector_chooses_nodes(
    api: ApiServer, tmp_path: Path, selector: str, names: str
) -> None:
    for name, zone in (("gpu1", "a"), ("gpu2", "b")):
        labels = {**H100, "topology.kubernetes.io/zone": zone}
        api.add("nodes", name, metadata={"labels": labels})
    add_node(api, "cpu1")
    assert " ".join(hosts(f"k8s:{selector}")) == names
    assert " ".join(hosts(f"{tmp_path}/k8s:{selector}")) == names  # of a nodevet.toml there


def test_a_large_cluster_is_read_page_by_page(api: ApiServer) -> None:
    for number in range(7):
        add_node(api, f"gpu{number}", f"10.0.0.{number}")
    api.largest = 2
    assert len(hosts("k8s:")) == 7
    assert api.asked.count(("list", "nodes")) == 4


def test_a_list_that_expires_between_pages_is_read_again(api: ApiServer) -> None:
    for number in range(5):
        add_node(api, f"gpu{number}")
    api.largest, api.expire_tokens = 2, 1
    assert list(hosts("k8s:")) == [f"gpu{number}" for number in range(5)]


def test_a_list_of_nodes_beyond_the_limit_is_refused(
    cluster: Cluster, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodevet.inventory.cluster.MAX_HOSTS", 1500)
    for number in range(9):
        add_node(api, f"gpu{number}")
    api.largest = 1
    with pytest.raises(ClusterError, match="more than 1,500 nodes"):
        cluster.nodes()


@pytest.mark.parametrize(
    ("inventory", "message"),
    [
        ("k8s:pool=none", "k8s:pool=none: no node has these labels"),
        ("k8s:a=$(id)", "not a label selector"),
        ("k8s:a b", "answers list nodes with 400: unable to parse requirement: a b"),
    ],
)
def test_an_invalid_or_empty_label_selector_is_reported(
    api: ApiServer, inventory: str, message: str
) -> None:
    add_node(api, "gpu1")
    with pytest.raises(InventoryError) as raised:
        hosts(inventory)
    assert message in str(raised.value)


def test_a_hostile_node_is_refused(api: ApiServer) -> None:
    api.add("nodes", "x", status={"addresses": [{"type": "InternalIP", "address": "-oProxy\x1b"}]})
    with pytest.raises(InventoryError, match="node x: InternalIP: ") as raised:
        hosts("k8s:")
    assert "\x1b" not in str(raised.value)


def test_a_missing_permission_is_named_by_its_rbac_verb_and_resource(api: ApiServer) -> None:
    api.allowed = set()
    with pytest.raises(InventoryError, match="needs the verb `list` on `nodes`: nodes is"):
        hosts("k8s:")


def test_wrong_credentials_a_missing_server_and_no_cluster_are_reported(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = api.write_kubeconfig(tmp_path / "kubeconfig", token="wrong")
    with pytest.raises(InventoryError, match="does not accept the credentials"):
        hosts("k8s:")
    path.write_text(path.read_text().replace(api.address, "http://127.0.0.1:1"))
    with pytest.raises(InventoryError, match=r"http://127\.0\.0\.1:1 does not answer: .*refused"):
        hosts("k8s:")
    for text in ("", "{", "clusters: 7\n"):
        path.write_text(text)
        with pytest.raises(InventoryError, match="no cluster: "):
            hosts("k8s:")


def test_an_answer_that_is_not_from_kubernetes_is_refused(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "answer", lambda *_: {"items": 7})
    with pytest.raises(InventoryError, match="the answer to list nodes is unreadable"):
        hosts("k8s:")


def certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.now(timezone.utc)
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = serialization.Encoding.PEM
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = folder / "server.pem"
    path.write_bytes(made.public_bytes(text) + key.private_bytes(text, pkcs8, plain))
    (folder / "ca.crt").write_bytes(made.public_bytes(text))
    return path


def test_in_a_pod_the_service_account_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = "kubernetes.config.incluster_config"
    with api_server(certificate(tmp_path)) as api:
        add_node(api, "gpu1")
        (tmp_path / "token").write_text(TOKEN)
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.address.rpartition(":")[2])
        monkeypatch.setattr(f"{loader}.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
        monkeypatch.setattr(f"{loader}.SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
        assert [node.name for node in connect().nodes()] == ["gpu1"]
        (tmp_path / "other").mkdir()
        certificate(tmp_path / "other")
        (tmp_path / "other/ca.crt").replace(tmp_path / "ca.crt")
        with pytest.raises(ClusterError, match="certificate"):
            connect().nodes()


def add_pod(api: ApiServer, name: str, node: str, phase: str, **labels: str) -> None:
    spec = {"nodeName": node} if node else {}
    api.add("pods", name, "ml", metadata={"labels": labels}, spec=spec, status={"phase": phase})


def test_the_pods_of_a_job_and_their_nodes(api: ApiServer) -> None:
    """For `nodevet diagnose --job NAMESPACE/NAME`."""
    for number in (1, 2, 3):
        add_node(api, f"gpu{number}", f"10.0.0.{number}")
    for number, (node, phase) in enumerate(
        [("gpu1", "Running"), ("gpu2", "Running"), ("gpu3", "Failed"), ("", "Pending")]
    ):
        named = {"batch.kubernetes.io/job-name": "train"}
        add_pod(api, f"train-{number}", node, phase, **named)
    add_pod(api, "other", "gpu3", "Running")
    job = find_job("ml/train")
    assert job.hosts == ("gpu1", "gpu2") and job.ids == ("pod uid-train-0", "pod uid-train-1")
    assert job.missing == ("pod train-2 on gpu3: Failed", "pod train-3 on no node: Pending")
    assert [(host.name, host.address) for host in hosts_of(job, Targets())] == [
        *(("gpu1", "10.0.0.1"), ("gpu2", "10.0.0.2")),
    ]
    assert find_job("ml/other").hosts == ("gpu3",)
    assert asked_again(job).changed == ""
    api.objects["pods", "ml", "train-1"]["status"]["phase"] = "Failed"
    assert asked_again(job).changed == "its hosts or pods changed during the watch"
    with pytest.raises(UserError, match="its pods have no node yet"):
        find_job("ml/train-3")
    with pytest.raises(UserError, match="no pod there has this name"):
        find_job("default/train")
    with pytest.raises(UserError, match="does not run: Failed"):
        hosts_of(find_job("ml/train-2"), Targets())
