"""The stand-in for an API server, and a kubeconfig for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_api import ApiServer, api_server

from nodevet.inventory.cluster import Cluster, connect


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """A cluster without nodes; nodevet finds it by its kubeconfig."""
    with api_server() as server:
        path = server.write_kubeconfig(tmp_path / "kubeconfig")
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        monkeypatch.setenv("KUBECONFIG", str(path))
        monkeypatch.chdir(tmp_path)
        yield server


@pytest.fixture
def cluster(api: ApiServer) -> Cluster:
    return connect()
