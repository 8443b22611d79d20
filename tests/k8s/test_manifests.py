"""The manifests of docs/integrations/kubernetes: by Kubernetes' schemas, and their roles with what
the commands really ask."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner
from kubernetes_api import ApiServer

from nodevet.cli import nodevet as command_line
from nodevet.inventory.cluster import Cluster
from nodevet.k8s.condition import TYPE
from nodevet.k8s.use.report import Reporter, expire
from tests.k8s.test_drained import Hook, add_pod
from tests.k8s.test_report import INFO, NOW, a_run, capped, written

FOLDER = Path(__file__).parents[2] / "docs/integrations/kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
DOCUMENTS = [
    (path.name, document) for path in FILES for document in yaml.safe_load_all(path.read_text())
]
VERSIONS = ("1.31", "1.37")
RULE = {  # kubernetes-sigs/node-readiness-controller, api/v1alpha1
    "type": "object",
    "additionalProperties": False,
    "required": ["conditions", "enforcementMode", "taint", "nodeSelector"],
    "properties": {
        "conditions": {
            "type": "array",
            "minItems": 1,
            "maxItems": 32,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["type", "requiredStatus"],
                "properties": {
                    "type": {"type": "string"},
                    "requiredStatus": {"enum": ["True", "False", "Unknown"]},
                },
            },
        },
        "enforcementMode": {"enum": ["bootstrap-only", "continuous"]},
        "taint": {
            "type": "object",
            "additionalProperties": False,
            "required": ["key", "effect"],
            "properties": {
                "key": {"type": "string", "pattern": "^readiness\\.k8s\\.io/[a-z-]+$"},
                "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
            },
        },
        "nodeSelector": {"type": "object", "required": ["matchLabels"]},
    },
}


def named(kind: str, file: str = "") -> list[dict[str, Any]]:
    return [each for name, each in DOCUMENTS if each["kind"] == kind and file in ("", name)]


def rights(file: str) -> set[tuple[str, str]]:
    """What the roles of a manifest allow: verb, resource."""
    roles = [*named("ClusterRole", file), *named("Role", file)]
    rules = [rule for role in roles for rule in role["rules"]]
    assert all(rule["apiGroups"] == [""] and "resourceNames" not in rule for rule in rules)
    return {(verb, each) for rule in rules for verb in rule["verbs"] for each in rule["resources"]}


def pod_specs() -> list[dict[str, Any]]:
    templates = [each["spec"]["template"] for each in (*named("DaemonSet"), *named("Job"))]
    templates += [each["spec"]["jobTemplate"]["spec"]["template"] for each in named("CronJob")]
    return [template["spec"] for template in templates]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_of_kubernetes_schema(version: str) -> None:
    checked = [each for _, each in DOCUMENTS if each["kind"] != "NodeReadinessRule"]
    for document in checked:
        kubernetes_validate.validate(document, version, strict=True)
    assert len(checked) > 12
    broken = {**named("DaemonSet")[0], "spec": {"selector": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_the_readiness_rule_waits_for_the_condition_that_nodevet_writes() -> None:
    (rule,) = named("NodeReadinessRule")
    assert rule["apiVersion"] == "readiness.node.x-k8s.io/v1alpha1"
    jsonschema.validate(rule["spec"], RULE)
    assert rule["spec"]["conditions"] == [{"type": TYPE, "requiredStatus": "True"}]


def test_the_role_of_the_pods_is_just_enough_for_a_report(api: ApiServer, cluster: Cluster) -> None:
    api.add("nodes", "gpu1", status={"conditions": [], "nodeInfo": INFO})
    api.allowed = rights("vet.yaml")
    written(cluster, a_run(*capped(1)))
    assert set(api.asked) == api.allowed


def test_the_role_of_the_cron_job_is_just_enough(api: ApiServer, cluster: Cluster) -> None:
    api.add("nodes", "gpu1", status={"conditions": []})
    api.allowed = rights("expire.yaml")
    api.before += [lambda: api.touch("gpu1")]  # so that it reads the node again
    (done,) = expire(Reporter(cluster, NOW, 1800.0), "")
    assert done.status == "Unknown"
    assert set(api.asked) == api.allowed


def test_a_policy_limits_who_may_write_the_status_of_nodes() -> None:
    """RBAC cannot limit which node or which part of a status an account writes."""
    writers = {
        subject["name"]
        for file in ("vet.yaml", "expire.yaml", "drain.yaml")
        if ("patch", "nodes/status") in rights(file)
        for each in named("ClusterRoleBinding", file)
        for subject in each["subjects"]
    }
    bound = {each["spec"]["policyName"]: each for each in named("ValidatingAdmissionPolicyBinding")}
    limited = set()
    for policy in named("ValidatingAdmissionPolicy"):
        spec = policy["spec"]
        assert bound[policy["metadata"]["name"]]["spec"]["validationActions"] == ["Deny"]
        assert spec["failurePolicy"] == "Fail"
        (rules,) = spec["matchConstraints"]["resourceRules"]
        assert (rules["operations"], rules["resources"]) == (["UPDATE"], ["nodes/status"])
        (condition,) = spec["matchConditions"]
        limited.add(condition["expression"].rpartition(":")[2].rstrip("'"))
        text = " ".join(each["expression"] for each in spec["validations"])
        assert "object.metadata.?labels == oldObject.metadata.?labels" in text
    assert limited == writers == {"nodevet-vet", "nodevet-expire"}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_cron_job_may_change_no_part_of_a_status_but_its_condition(version: str) -> None:
    schemas = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    schema = json.loads((schemas / f"v{version}.0-local" / "nodestatus-v1.json").read_text())
    (policy,) = named("ValidatingAdmissionPolicy", "expire.yaml")
    text = " ".join(each["expression"] for each in policy["spec"]["validations"])
    kept = set(re.findall(r"object\.status\.\?(\w+) == oldObject\.status\.\?\1(?!\w)", text))
    assert kept >= schema["properties"].keys() - {"conditions"}
    assert f"c.type != '{TYPE}' || c.status == 'Unknown'" in text


def test_the_role_of_the_hook_is_just_enough(api: ApiServer, cluster: Cluster) -> None:
    api.add("nodes", "gpu1")
    add_pod(api, "train")
    api.allowed = rights("drain.yaml")
    hook = Hook(cluster)
    hook.drain()
    hook.undrain()
    assert set(api.asked) == api.allowed


def test_every_binding_names_an_existing_role_and_account() -> None:
    accounts = {each["metadata"]["name"] for each in named("ServiceAccount")}
    for kind in ("Role", "ClusterRole"):
        roles = {each["metadata"]["name"] for each in named(kind)}
        bindings = named(f"{kind}Binding")
        assert {each["roleRef"]["name"] for each in bindings} <= roles and bindings
        assert {subject["name"] for each in bindings for subject in each["subjects"]} <= accounts
    assert {spec.get("serviceAccountName") for spec in pod_specs()} <= accounts | {None}


def test_pods_write_nowhere_on_the_node() -> None:
    assert len(pod_specs()) == 3
    for spec in pod_specs():
        (container,) = spec["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        hosts = {each["name"] for each in spec.get("volumes", ()) if "hostPath" in each}
        mounts = [each for each in container.get("volumeMounts", ()) if each["name"] in hosts]
        assert all(each["readOnly"] for each in mounts) and len(mounts) == len(hosts)
        assert container["resources"]["limits"].keys() == {"memory"}


def test_every_command_of_the_pods_is_a_nodevet_command(tmp_path: Path) -> None:
    (daemon,) = named("DaemonSet")
    script = daemon["spec"]["template"]["spec"]["containers"][0]["args"][0].replace("\\\n", " ")
    lines = [shlex.split(found) for found in re.findall(r"^ *nodevet (.*)$", script, re.M)]
    lines += [
        spec["containers"][0]["args"]
        for spec in pod_specs()
        if "command" not in spec["containers"][0]
    ]
    assert len(lines) == 4
    for words in lines:
        done = CliRunner().invoke(command_line, [*words, "--no-such-option"])
        assert "No such option" in done.output and "--no-such-option" in done.output, done.output
    (config,) = named("ConfigMap")
    for name, text in config["data"].items():
        (tmp_path / name).write_text(text)
    told = ["check", "-i", f"{tmp_path}/host.yaml", "-b", f"{tmp_path}/site.yaml", "--only", "none"]
    done = CliRunner().invoke(command_line, told)
    assert "no baseline here expects this check" in str(done.exception)  # it read both files
