"""A stand-in for Kubernetes' API server: no real one can be had here.

It is a real HTTP server with the rules of the API's documentation that nodevet depends on, and the
real client talks to it: label and field selectors, pages with `continue` tokens, roles (403),
resourceVersion in patches (409), strategic merge patches by the key of each list, merge patches
that replace lists, status as a subresource, uid preconditions and PodDisruptionBudgets of
evictions (429), and names of events that exist (409). It has nothing else of an API server.
"""

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

Json = dict[str, Any]
Key = tuple[str, str, str]  # resource, namespace, name
TOKEN = "service-account-token"
MERGE_KEYS = {"conditions": "type", "addresses": "type", "taints": "key"}  # of core/v1's types
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
OBJECT = re.compile(
    r"/api/v1(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>nodes|pods|events)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>status|eviction))?"
)


class Refused(Exception):
    """An answer that is not 2xx."""

    def __init__(self, status: int, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.details = {"details": {"causes": [{"reason": cause}]}} if cause else {}


class ApiServer:
    """Objects, who may do what with them, and what was asked."""

    def __init__(self) -> None:
        self.objects: dict[Key, Json] = {}
        self.allowed: set[tuple[str, str]] | None = None  # verb, resource; None: everything
        self.asked: list[tuple[str, str]] = []  # verb, resource
        self.budgets: dict[str, int] = {}  # evictions that remain, by pod
        self.stay = False  # pods end later, by `end_pods`
        self.before: list[Callable[[], None]] = []  # called once each before a PATCH is looked at
        self.expire_tokens = 0  # tokens that are too old
        self.busy: list[int] = []  # statuses of the next answers to GET
        self.broken_budgets = False  # two budgets select each pod
        self.ending_namespaces: set[str] = set()
        self.largest = 500  # objects in one answer
        self.lock = threading.RLock()
        self.version = 0
        self.address = ""

    # --- what a test does ---

    def add(self, resource: str, name: str, namespace: str = "", **rest: Any) -> Json:
        meta = {"name": name, "uid": f"uid-{name}", **rest.pop("metadata", {})}
        if namespace:
            meta["namespace"] = namespace
        return self.store((resource, namespace, name), {"metadata": meta, **rest})

    def node(self, name: str) -> Json:
        return self.objects["nodes", "", name]

    def condition(self, name: str, kind: str = "NodevetPassed") -> Json:
        conditions = self.node(name)["status"]["conditions"]
        (found,) = [each for each in conditions if each["type"] == kind]
        return dict(found)

    def events(self) -> list[Json]:
        return [each for (resource, _, _), each in self.objects.items() if resource == "events"]

    def touch(self, name: str) -> None:
        """Somebody else changes the node."""
        self.store(("nodes", "", name), self.node(name))

    def end_pods(self) -> None:
        with self.lock:
            for key in [key for key, each in self.objects.items() if ending(each)]:
                del self.objects[key]

    def write_kubeconfig(self, path: Path, token: str = TOKEN) -> Path:
        named = {
            "clusters": [{"name": "c", "cluster": {"server": self.address}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "x", **named}
        path.write_text(yaml.safe_dump(config))
        return path

    # --- what it answers ---

    def store(self, key: Key, value: Json) -> Json:
        with self.lock:
            self.version += 1
            kept = deepcopy(value)
            kept["metadata"]["resourceVersion"] = str(self.version)
            self.objects[key] = kept
            return kept

    def answer(self, method: str, path: str, query: dict[str, str], body: Any, kind: str) -> Json:
        match = OBJECT.fullmatch(path)
        if match is None:
            raise Refused(404, "the server could not find the requested resource")
        resource, sub = match["resource"], match["sub"]
        namespace, name = (unquote(match[part] or "") for part in ("namespace", "name"))
        verb = {"POST": "create", "PATCH": "patch", "GET": "get" if name else "list"}[method]
        full = f"{resource}/{sub}" if sub else resource
        self.asked.append((verb, full))
        if method == "GET" and self.busy:
            raise Refused(self.busy.pop(0), "the server is too busy")
        if self.allowed is not None and (verb, full) not in self.allowed:
            who = 'User "system:serviceaccount:nodevet:nodevet"'
            raise Refused(403, f'{resource} is forbidden: {who} cannot {verb} resource "{full}"')
        if verb == "list":
            return self.page(resource, namespace, query)
        if verb == "create" and resource == "events":
            return self.new_event(namespace, body)
        key = (resource, namespace, name)
        if key not in self.objects:
            raise Refused(404, f'{resource} "{name}" not found')
        if sub == "eviction":
            return self.eviction(key, body)
        return self.patch(key, sub or "", body, kind) if verb == "patch" else self.objects[key]

    def page(self, resource: str, namespace: str, query: dict[str, str]) -> Json:
        chosen = [
            each
            for (kind, place, _), each in self.objects.items()
            if kind == resource
            and namespace in ("", place)
            and selects(query.get("labelSelector", ""), each["metadata"].get("labels", {}))
            and by_field(query.get("fieldSelector", ""), each)
        ]
        if "continue" in query and self.expire_tokens:
            self.expire_tokens -= 1
            raise Refused(410, "The provided continue parameter is too old")
        at = int(query.get("continue", "0"))
        end = at + min(int(query.get("limit", "500")), self.largest)
        more = {"continue": str(end)} if end < len(chosen) else {}
        return {"kind": "List", "metadata": more, "items": chosen[at:end]}

    def new_event(self, namespace: str, body: Json) -> Json:
        if body["metadata"]["namespace"] != namespace:
            raise Refused(400, "the namespace of the object does not match the request")
        if body["involvedObject"].get("namespace", "default") != namespace:
            raise Refused(422, "involvedObject.namespace: does not match event.namespace")
        key = ("events", namespace, body["metadata"]["name"])
        if key in self.objects:
            raise Refused(409, f'events "{key[2]}" already exists')
        return self.store(key, body)

    def eviction(self, key: Key, body: Json) -> Json:
        pod = self.objects[key]
        if (body["apiVersion"], body["kind"]) != ("policy/v1", "Eviction"):
            raise Refused(400, "no Eviction of policy/v1")
        wished = body.get("deleteOptions", {}).get("preconditions", {}).get("uid")
        if wished not in (None, pod["metadata"]["uid"]):
            raise Refused(409, "Precondition failed: UID in precondition")
        if key[1] in self.ending_namespaces:
            text = f'pods "{key[2]}" is forbidden: namespace {key[1]} is being terminated'
            raise Refused(403, text, "NamespaceTerminating")
        if self.broken_budgets:
            text = "This pod has more than one PodDisruptionBudget, which is not supported."
            raise Refused(500, text)
        if self.budgets.get(key[2], 1) <= 0:
            text = "Cannot evict pod as it would violate the pod's disruption budget."
            raise Refused(429, text)
        self.budgets[key[2]] = self.budgets.get(key[2], 1) - 1
        meta = {**pod["metadata"], "deletionTimestamp": "2026-11-29T00:00:00Z"}
        self.store(key, {**pod, "metadata": meta})
        if not self.stay:
            del self.objects[key]
        return {"kind": "Status", "status": "Success"}

    def patch(self, key: Key, sub: str, body: Json, kind: str) -> Json:
        if kind not in (STRATEGIC, MERGE):
            raise Refused(415, f"the body of the request was in an unknown format: {kind}")
        old = self.objects[key]
        wished = body.get("metadata", {}).pop("resourceVersion", None)
        if wished not in (None, old["metadata"]["resourceVersion"]):
            raise Refused(
                409, "the object has been modified; please apply your changes to the latest"
            )
        body.pop("spec" if sub == "status" else "status", None)
        return self.store(key, merged(old, body, by_key=kind == STRATEGIC))


def ending(value: Json) -> bool:
    return "deletionTimestamp" in value["metadata"]


def merged(old: Any, new: Any, *, by_key: bool, field: str = "") -> Any:
    """RFC 7386; with `by_key`, lists of objects are merged by their key, as strategic merge
    patches are."""
    if isinstance(old, list) and isinstance(new, list) and by_key and field in MERGE_KEYS:
        name = MERGE_KEYS[field]
        rows = {each[name]: each for each in old}
        for each in new:
            rows[each[name]] = merged(rows.get(each[name], {}), each, by_key=by_key)
        return list(rows.values())
    if not isinstance(new, dict):
        return new
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in new.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value, by_key=by_key, field=name)
    return result


def by_field(selector: str, value: Json) -> bool:
    if not selector:
        return True
    path, _, wished = selector.partition("=")
    for part in path.split("."):
        value = value.get(part, {})
    return value == wished  # type: ignore[comparison-overlap]


def selects(selector: str, labels: dict[str, str]) -> bool:
    """Kubernetes' label selectors."""
    terms = re.findall(r"[^,(]+(?:\([^)]*\))?", selector)
    return all(_holds(term.strip(), labels) for term in terms)


def _holds(term: str, labels: dict[str, str]) -> bool:
    if found := re.fullmatch(r"(\S+) (in|notin) \(([^)]*)\)", term):
        values = [each.strip() for each in found[3].split(",")]
        return (labels.get(found[1]) in values) == (found[2] == "in")
    if found := re.fullmatch(r"([\w./-]+)(!=|==|=)([\w.-]*)", term):
        return (labels.get(found[1]) == found[3]) == (found[2] != "!=")
    if found := re.fullmatch(r"(!?)([\w./-]+)", term):
        return (found[2] in labels) == (not found[1])
    raise Refused(400, f"unable to parse requirement: {term}")


def _handler(server: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(length)) if length else None
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            try:
                scheme, _, token = self.headers.get("Authorization", "").partition(" ")
                if (scheme.lower(), token) != ("bearer", TOKEN):
                    raise Refused(401, "Unauthorized")
                while self.command == "PATCH" and server.before:
                    server.before.pop(0)()
                with server.lock:
                    kind = self.headers.get("Content-Type", "")
                    status, value = 200, server.answer(self.command, parts.path, query, body, kind)
                    data = json.dumps(value).encode()
            except Refused as error:
                status = error.status
                reply = {"kind": "Status", "status": "Failure", "message": str(error)}
                reply |= error.details
                data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = _serve

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the test asks `asked`."""

    return Handler


@contextmanager
def api_server(certificate: Path | None = None) -> Iterator[ApiServer]:
    """A server on a free port of the loopback; with a certificate (and its key, in one file) over
    TLS."""
    server = ApiServer()
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        http.socket = context.wrap_socket(http.socket, server_side=True)
    server.address = f"http{'s' if certificate else ''}://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
