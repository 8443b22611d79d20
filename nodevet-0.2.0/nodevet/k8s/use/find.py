"""Find the Kubernetes node of a host."""

from nodevet.base.printable import brief
from nodevet.inventory.cluster import GONE, Cluster, ClusterError
from nodevet.inventory.cluster_objects import ClusterNode
from nodevet.k8s.names import names_in_cluster


def node_of(cluster: Cluster, host: str) -> ClusterNode:
    """The node of a host. Raises ClusterError, with status 404 if Kubernetes has no such node."""
    for name in names_in_cluster(host):
        try:
            return cluster.node(name)
        except ClusterError as error:
            if error.status != GONE:
                raise
    raise ClusterError(f"Kubernetes has no node {brief(host)}", GONE)
