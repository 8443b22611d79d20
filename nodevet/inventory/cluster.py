"""Ask Kubernetes' API server, with the Kubernetes project's client.

nodevet uses the kubeconfig of kubectl ($KUBECONFIG, else ~/.kube/config), and in a pod the service
account. The client authenticates and connects; msgspec decodes, because the client's own types take
milliseconds for each node.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from nodevet.base import typed
from nodevet.base.errors import UserError
from nodevet.base.nodeset import MAX_HOSTS
from nodevet.base.printable import brief
from nodevet.inventory.cluster_objects import ApiRefusal, ClusterNode, NodeList, Pod, PodList

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

PAGE = 500  # objects in one answer, as kubectl asks for
TIMEOUT = (5.0, 30.0)  # seconds to connect, and for an answer
STRATEGIC = "application/strategic-merge-patch+json"
"""A patch that adds to lists by their key, such as the type of a condition."""
INSTALL = "install it with: pip install 'nodevet[kubernetes]'"
NOT_OF_FORM = (TypeError, ValueError, LookupError, AttributeError)
"""What the client raises for a kubeconfig with a list where a mapping belongs."""
LONGEST_REASON = 300  # characters of what the server says
GONE, CONFLICT, EXPIRED, TOO_MANY = 404, 409, 410, 429
FORBIDDEN, UNKNOWN_USER = 403, 401
BUSY = frozenset({TOO_MANY, 500, 502, 503, 504})
"""Statuses of reads that may succeed later: the server or its store restarts, or is too busy."""
ENDING_NAMESPACE = "NamespaceTerminating"
Decoded = TypeVar("Decoded")


class ClusterError(UserError):
    """The API server refused or failed a request. `status`: of HTTP; 0 if it did not answer.
    `causes`: the machine-readable reasons in its answer."""

    def __init__(self, text: str, status: int = 0, causes: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.causes = frozenset(causes)


class ApiSilentError(ClusterError):
    """The API server did not answer, or is too busy for a read; a later request may succeed."""


class Right(NamedTuple):
    """The permission that a request needs, in the words of RBAC."""

    verb: str
    resource: str


class Cluster:
    """One API server. Every method raises ClusterError."""

    def __init__(self, api: "ApiClient") -> None:
        self._api = api
        self.address = brief(str(api.configuration.host))

    def nodes(self, selector: str = "") -> list[ClusterNode]:
        """The nodes that a label selector chooses; by default all."""
        query = {"labelSelector": selector} if selector else {}
        return self._list_objects(Right("list", "nodes"), "/api/v1/nodes", NodeList, query)

    def node(self, name: str) -> ClusterNode:
        """The node of this name."""
        return self._ask(Right("get", "nodes"), "GET", _node_path(name), ClusterNode)

    def pods_on(self, node: str) -> list[Pod]:
        """The pods that are bound to a node, in all namespaces."""
        query = {"fieldSelector": f"spec.nodeName={node}"}
        return self._list_objects(Right("list", "pods"), "/api/v1/pods", PodList, query)

    def pods_in(self, namespace: str) -> list[Pod]:
        """The pods of a namespace."""
        return self._list_objects(
            Right("list", "pods"), f"{_namespace_path(namespace)}/pods", PodList, {}
        )

    def patch_node(self, node: ClusterNode, changes: Mapping[str, Any]) -> None:
        """Change a node. Status 409 if anyone has changed it since nodevet read it."""
        body = _as_read(node, changes)
        self._ask(Right("patch", "nodes"), "PATCH", _node_path(node.name), ClusterNode, body)

    def patch_status(self, node: ClusterNode, changes: Mapping[str, Any]) -> None:
        """Change the status of a node, as `patch_node` does."""
        body, path = _as_read(node, {"status": changes}), f"{_node_path(node.name)}/status"
        self._ask(Right("patch", "nodes/status"), "PATCH", path, ClusterNode, body)

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Record an event, unless an event with this name exists."""
        path = f"{_namespace_path(event['metadata']['namespace'])}/events"
        try:
            self._ask(Right("create", "events"), "POST", path, dict[str, Any], event)
        except ClusterError as error:
            if error.status != CONFLICT:
                raise

    def evict(self, pod: Pod) -> None:
        """Request the eviction of exactly this pod (policy/v1). Status 429 if a PodDisruptionBudget
        forbids it now, 404 or 409 if the pod is gone."""
        meta = pod.metadata
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"preconditions": {"uid": meta.uid}},
        }
        path = f"{_namespace_path(meta.namespace)}/pods/{quote(meta.name, safe='')}/eviction"
        self._ask(Right("create", "pods/eviction"), "POST", path, dict[str, Any], body)

    def _list_objects(
        self,
        right: Right,
        path: str,
        kind: type[NodeList] | type[PodList],
        query: Mapping[str, str],
    ) -> list[Any]:
        """Every object of a list, read page by page; again from the first page if the list expires
        on the server meanwhile."""
        items: list[Any] = []
        token = ""
        for _ in range(MAX_HOSTS // PAGE):
            words = {**query, "limit": str(PAGE), **({"continue": token} if token else {})}
            try:
                page = self._ask(right, "GET", path, kind, query=words)
            except ClusterError as error:
                if error.status != EXPIRED or not token:
                    raise
                items, token = [], ""
                continue
            items += page.items
            token = page.metadata.token
            if not token:
                return items
        raise ClusterError(f"{self.address}: more than {MAX_HOSTS:,} {right.resource}")

    def _ask(
        self,
        right: Right,
        method: str,
        path: str,
        kind: type[Decoded],
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Decoded:
        from kubernetes.client.exceptions import OpenApiException
        from urllib3.exceptions import HTTPError

        content = STRATEGIC if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": content}
        try:
            request = self._api.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = self._api.call_api(*request, _request_timeout=TIMEOUT)
            data: bytes = answer.read()  # type: ignore[no-untyped-call]
        except (HTTPError, OpenApiException, OSError) as error:
            why = brief(str(error) or type(error).__name__, LONGEST_REASON)
            raise ApiSilentError(f"{self.address} does not answer: {why}") from error
        if not 200 <= answer.status < 300:
            refused = _refusal_of(self.address, right, answer.status, data)
            if method == "GET" and answer.status in BUSY:
                raise ApiSilentError(str(refused), answer.status)
            raise refused
        try:
            return typed.decode(data, kind)
        except msgspec.DecodeError as error:
            text = f"{self.address}: the answer to {right.verb} {right.resource} is unreadable"
            raise ClusterError(f"{text}: {brief(str(error), LONGEST_REASON)}") from error


def connect() -> Cluster:
    """The cluster of the kubeconfig or of the pod. Raises ClusterError."""
    try:
        from kubernetes import client, config
    except ImportError:
        raise ClusterError(f"the package kubernetes is missing; {INSTALL}") from None
    from yaml import YAMLError

    settings = client.Configuration()
    try:
        if _is_in_pod():
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    except (config.ConfigException, YAMLError, OSError, *NOT_OF_FORM) as error:
        why = brief(str(error), LONGEST_REASON).rstrip(".")
        text = f"no cluster: {why}; name a kubeconfig in $KUBECONFIG"
        raise ClusterError(text) from error
    settings.retries = False  # the caller decides whether to try again
    return Cluster(client.ApiClient(settings))


def _is_in_pod() -> bool:
    """Whether to use the service account: in a pod without a kubeconfig, as kubectl does."""
    named = os.environ.get("KUBECONFIG") or (Path.home() / ".kube/config").exists()
    return not named and "KUBERNETES_SERVICE_HOST" in os.environ


def _namespace_path(name: str) -> str:
    return f"/api/v1/namespaces/{quote(name, safe='')}"


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


def _as_read(node: ClusterNode, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A patch that the server refuses with 409 if the object has changed since nodevet read it."""
    meta = {**changes.get("metadata", {}), "resourceVersion": node.metadata.resource_version}
    return {**changes, "metadata": meta}


def _refusal_of(address: str, right: Right, status: int, data: bytes) -> ClusterError:
    try:
        refusal = typed.decode(data, ApiRefusal)
    except msgspec.DecodeError:
        refusal = ApiRefusal()
    message = brief(refusal.message, LONGEST_REASON)
    causes = [cause.reason for cause in refusal.details.causes] if refusal.details else ()
    does = {
        UNKNOWN_USER: "does not accept the credentials of the kubeconfig or service account",
        FORBIDDEN: f"forbids it: the RBAC role needs the verb `{right.verb}` on `{right.resource}`",
    }.get(status, f"answers {right.verb} {right.resource} with {status}")
    return ClusterError(f"{address} {does}{': ' if message else ''}{message}", status, causes)
