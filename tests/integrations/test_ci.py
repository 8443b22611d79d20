"""The GitHub action and the GitLab template: valid by the vendors' schemas, and their steps run.

No runner can be had here: a test fills in the inputs and runs each step with bash as a runner does.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml

FOLDER = Path(__file__).parents[2] / "integrations"
GITHUB, GITLAB = FOLDER / "github", FOLDER / "gitlab"
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
BASELINE = "nodevet: 1\ntitle: t\nexpect: {{sysctl: {{kernel.ostype: {ostype}}}}}\n"
Job = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("github-actions", GITHUB / "action.yml"),
        ("github-workflows", GITHUB / "example.yml"),
        ("gitlab-ci", GITLAB / "nodevet.yml"),
    ],
)
def test_the_ci_files_match_the_vendors_schemas(schema: str, file: Path) -> None:
    program = Path(sys.prefix, "bin/check-jsonschema")
    words = [program, "--builtin-schema", f"vendor.{schema}", file]
    done = subprocess.run(words, capture_output=True, text=True, cwd=FOLDER)
    assert done.returncode == 0, done.stdout


def test_no_input_is_pasted_into_a_script() -> None:
    """Whoever names a branch or a folder must not write the script."""
    for step in yaml.safe_load((GITHUB / "action.yml").read_text())["runs"]["steps"]:
        assert "${{" not in step["run"]


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=ann", "-c", "user.email=ann@example.com")
    done = subprocess.run(["git", "-C", folder, *names, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def write_baseline(site: Path, text: str) -> None:
    (site / "baselines").mkdir(parents=True, exist_ok=True)
    (site / "baselines" / "site.yaml").write_text(text)
    git(site, "add", ".")
    git(site, "commit", "--quiet", "-m", "change the baseline")


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What last night's sweep would have saved."""
    folder = tmp_path_factory.mktemp("night")
    (folder / "site.yaml").write_text(BASELINE.format(ostype="Linux"))
    words = [sys.executable, "-m", "nodevet", "check", "@local", "-b", "site.yaml"]
    subprocess.run([*words, "--save", folder / "evidence"], cwd=folder, check=True)
    return folder / "evidence"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of a repository whose first commit expects Linux."""
    git(tmp_path, "init", "--quiet", "repository")
    write_baseline(tmp_path / "repository" / "site", BASELINE.format(ostype="Linux"))
    return tmp_path / "repository" / "site"


def filled(text: str, inputs: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda match: inputs[match[1]], text)


@pytest.fixture
def action(tmp_path: Path, site: Path) -> Job:
    """Runs a step of the action; its outputs are lines of tmp_path/output."""
    document = yaml.safe_load((GITHUB / "action.yml").read_text())
    inputs = {name: one["default"] for name, one in document["inputs"].items()}

    def run(step: str, **given: str) -> subprocess.CompletedProcess[str]:
        (found,) = [one for one in document["runs"]["steps"] if one.get("id") == step]
        chosen = {**inputs, "project": "site", **{k.replace("_", "-"): v for k, v in given.items()}}
        env = {name: filled(text, chosen) for name, text in found["env"].items()}
        return run_script(found["run"], site.parent, **env)

    def run_script(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
        variables = {
            **os.environ,
            **env,
            "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        }
        return subprocess.run(
            [*BASH, script], cwd=folder, env=variables, capture_output=True, text=True, timeout=400
        )

    return run


def outputs(folder: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (folder / "output").read_text().splitlines())


def test_lint_annotates_the_line_and_writes_sarif(action: Job, site: Path, tmp_path: Path) -> None:
    write_baseline(site, "nodevet: 1\ntitle: t\nexpect: {sysctl: 7}\n")
    done = action("lint")
    assert done.returncode == 2
    assert "::error file=site/baselines/site.yaml,line=3" in done.stdout
    sarif = yaml.safe_load((site.parent / outputs(tmp_path)["sarif"]).read_text())
    assert sarif["runs"][0]["results"][0]["level"] == "error"


def test_the_preview_fails_if_a_check_newly_fails(
    action: Job, site: Path, evidence: Path, tmp_path: Path
) -> None:
    base = git(site, "rev-parse", "HEAD")
    write_baseline(site, BASELINE.format(ostype="Plan9"))
    done = action("preview", base=base, baseline="site", evidence=str(evidence))
    assert done.returncode == 1, done
    found = outputs(tmp_path)
    assert found["exit-code"] == "1"
    assert "newly fails" in (tmp_path / "summary").read_text()
    assert (site.parent / found["markdown"]).read_text() == (tmp_path / "summary").read_text()
    junit = JUnitXml.fromstring((site.parent / found["junit"]).read_bytes())
    assert (junit.tests, junit.failures) == (1, 1)
    assert git(site, "worktree", "list").count("\n") == 0
    mistake = action("preview", base="HEAD", baseline="absent", evidence=str(evidence))
    assert mistake.returncode == 2 and outputs(tmp_path)["exit-code"] == "2"


def gitlab_codes(site: Path, evidence: Path, base: str, **variables: str) -> dict[str, int]:
    """How the scripts of the template end."""
    document: dict[str, Any] = yaml.safe_load((GITLAB / "nodevet.yml").read_text())
    env = {
        **os.environ,
        **document["variables"],
        "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
        "NODEVET_PROJECT": "site",
        "NODEVET_EVIDENCE": str(evidence),
        "NODEVET_BASELINE": "site",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
        **{f"NODEVET_{name.upper()}": value for name, value in variables.items()},
    }
    codes = {}
    for name in ("nodevet-lint", "nodevet-preview"):
        script = "\n".join(document[name]["script"])
        done = subprocess.run([*BASH, script], cwd=site.parent, env=env, timeout=400)
        codes[name] = done.returncode
    return codes


def test_the_gitlab_template_also_fails_if_a_check_newly_fails(site: Path, evidence: Path) -> None:
    base = git(site, "rev-parse", "HEAD")
    write_baseline(site, BASELINE.format(ostype="Plan9"))
    codes = gitlab_codes(site, evidence, base)
    assert codes == {"nodevet-lint": 0, "nodevet-preview": 1}
    assert JUnitXml.fromfile(str(site.parent / "preview.xml")).failures == 1


def test_reports_and_evidence_of_the_branch_are_not_shown(
    action: Job, site: Path, evidence: Path, tmp_path: Path
) -> None:
    """A branch may bring files of the names that the steps write or read."""
    for name in ("nodevet.sarif", "preview.md", "preview.xml"):
        (site.parent / "nodevet-reports").mkdir(exist_ok=True)
        (site.parent / "nodevet-reports" / name).write_text("no verdict changes")
    (site.parent / "preview.xml").write_text("<testsuites/>")
    (site.parent / "evidence").mkdir()
    (site.parent / "evidence" / "gpu001.json").write_text("{}")
    git(site.parent, "add", ".")
    write_baseline(site, "nodevet: 1\ntitle: t\nexpect: {sysctl: 7}\n")
    assert action("lint", project="absent").returncode == 2
    assert action("preview", base="HEAD", evidence=str(evidence), max_age="x").returncode == 2
    assert list((site.parent / "nodevet-reports").iterdir()) == []
    assert set(outputs(tmp_path)) == {"exit-code"}
    assert gitlab_codes(site, evidence, "HEAD", fail_on="x")["nodevet-preview"] == 2
    assert not (site.parent / "preview.xml").exists()
    run = action("preview", base="HEAD", evidence="evidence")
    assert run.returncode == 2 and "has files of this branch" in run.stdout
    assert gitlab_codes(site, Path("evidence"), "HEAD")["nodevet-preview"] == 2


def test_a_link_in_place_of_the_reports_is_not_followed(
    action: Job, site: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (site.parent / "nodevet-reports").symlink_to(tmp_path / "elsewhere")
    assert action("lint").returncode != 0
    assert list((tmp_path / "elsewhere").iterdir()) == []
