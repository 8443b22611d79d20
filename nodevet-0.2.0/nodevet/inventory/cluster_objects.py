"""Objects of Kubernetes' API: the fields that nodevet reads, as the API spells them. Pure.

Source: k8s.io/api, core/v1 (Node, Pod) and apimachinery meta/v1 (ObjectMeta, ListMeta, Status).
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field


class ApiObject(Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of all types here: names are camelCase, and unknown fields are ignored."""


class Owner(ApiObject, frozen=True, kw_only=True):
    """The controller of an object, or another owner."""

    kind: str = ""
    controller: bool = False


class Meta(ApiObject, frozen=True, kw_only=True):
    """metadata of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    deletion_timestamp: str | None = None


class Taint(ApiObject, frozen=True, kw_only=True):
    """A taint of a node."""

    key: str = ""


class ClusterNodeSpec(ApiObject, frozen=True, kw_only=True):
    """spec of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class Address(ApiObject, frozen=True, kw_only=True):
    """An address of a node: InternalIP, ExternalIP, Hostname, ..."""

    type: str = ""
    address: str = ""


class NodeCondition(ApiObject, frozen=True, kw_only=True):
    """A condition of a node. Times are RFC 3339."""

    type: str = ""
    status: str = ""  # True, False or Unknown
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None


class NodeInfo(ApiObject, frozen=True, kw_only=True):
    """The ids of the machine that the kubelet reports."""

    machine_id: str = field(default="", name="machineID")
    boot_id: str = field(default="", name="bootID")


class NodeStatus(ApiObject, frozen=True, kw_only=True):
    """status of a node."""

    addresses: tuple[Address, ...] = ()
    conditions: tuple[NodeCondition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class ClusterNode(ApiObject, frozen=True, kw_only=True):
    """A node."""

    metadata: Meta = Meta()
    spec: ClusterNodeSpec = ClusterNodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    def condition(self, kind: str) -> NodeCondition | None:
        """Its condition of this type, or None."""
        return next((each for each in self.status.conditions if each.type == kind), None)


class Volume(ApiObject, frozen=True, kw_only=True):
    """A volume of a pod."""

    empty_dir: Mapping[str, Any] | None = None


class PodSpec(ApiObject, frozen=True, kw_only=True):
    """spec of a pod."""

    volumes: tuple[Volume, ...] = ()


class PodStatus(ApiObject, frozen=True, kw_only=True):
    """status of a pod."""

    phase: str = ""


class Pod(ApiObject, frozen=True, kw_only=True):
    """A pod."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def label(self) -> str:
        """`NAMESPACE/NAME`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class ListMeta(ApiObject, frozen=True, kw_only=True):
    """metadata of a list; `token` asks for its next page."""

    token: str = field(default="", name="continue")


class NodeList(ApiObject, frozen=True, kw_only=True):
    """One page of nodes."""

    metadata: ListMeta = ListMeta()
    items: tuple[ClusterNode, ...] = ()


class PodList(ApiObject, frozen=True, kw_only=True):
    """One page of pods."""

    metadata: ListMeta = ListMeta()
    items: tuple[Pod, ...] = ()


class RefusalCause(ApiObject, frozen=True, kw_only=True):
    """One reason of a refusal: NamespaceTerminating, ..."""

    reason: str = ""


class RefusalDetails(ApiObject, frozen=True, kw_only=True):
    """details of a Status."""

    causes: tuple[RefusalCause, ...] = ()


class ApiRefusal(ApiObject, frozen=True, kw_only=True):
    """The Status object of an API server that refuses a request."""

    message: str = ""
    details: RefusalDetails | None = None
