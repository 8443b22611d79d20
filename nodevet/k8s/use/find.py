"""Find the Kubernetes node of a host."""

from nodevet.base.printable import brief
from nodevet.inventory.cluster import GONE, Cluster, ClusterError
from nodevet.inventory.cluster_objects import ClusterNode


def node_of(cluster: Cluster, host: str) -> ClusterNode:
    """The node of a host. Raises ClusterError, with status 404 if Kubernetes has no such node."""
    for name in names_in_cluster(host):
        try:
            return cluster.node(name)
        except ClusterError as error:
            if error.status != GONE:
                raise
    raise ClusterError(f"Kubernetes has no node {brief(host)}", GONE)


def names_in_cluster(host: str) -> tuple[str, ...]:
    """The name of the host, and the name without its domain. Kubernetes uses lower case.

    >>> names_in_cluster("GPU007.example.com")
    ('gpu007.example.com', 'gpu007')
    """
    name = host.lower()
    return tuple(dict.fromkeys((name, name.partition(".")[0])))
