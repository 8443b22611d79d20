"""Every check has a page, and docs/checks/ is made of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nodevet.model import Area

ROOT = Path(__file__).parents[2]


def test_docs_are_current():
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_of_what_can_be_fixed_has_each_check(check_id, catalog):
    page = (ROOT / "docs" / "fixable.md").read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if row.startswith(f"| [{check_id}](")]
    assert len(rows) == 1, f"docs/fixable.md has no row for {check_id}: run make docs"
    (row,) = rows
    _, _, repair, how, _ = (cell.strip() for cell in re.split(r"(?<!\\)\|", row))
    fix = catalog.fix(check_id)
    assert repair == f"**fix** ({fix.risk.value})" if fix else repair in ("task", "none")
    assert len(how) > 20, f"{check_id}: say more under **To fix it** in the docstring"


@pytest.mark.parametrize(
    ("check", "command"),
    [
        ("vbios", "`nvfwupd -c FILE update_fw`"),
        ("gsp_firmware", "`apt-get install --reinstall PACKAGE`"),
        ("ofed", "`dnf install doca-ofed`"),
    ],
)
def test_tasks_on_the_fixable_page_name_their_commands(check, command):
    page = (ROOT / "docs" / "fixable.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| \[{check}\].*\| task \| .*{re.escape(command)}", page, re.MULTILINE)


def test_a_check_that_is_gone_leaves_no_page_behind(tmp_path):
    """The generator, run on a copy of itself, removes what no check is the source of."""
    script = tmp_path / "generate.py"
    script.write_text((ROOT / "docs" / "generate.py").read_text())
    for path in (ROOT / "docs").glob("*.yaml"):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "checks").mkdir()
    stale = tmp_path / "checks" / "gone.md"
    stale.write_text("# gone\n")
    found = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert found.returncode == 1 and f"{stale} is not current" in found.stderr
    subprocess.run([sys.executable, script], check=True)
    assert not stale.exists() and (tmp_path / "checks" / "xid.md").exists()


def test_every_shipped_check_is_about_an_area(check_id, catalog):
    assert catalog.check(check_id).area is not Area.SITE


def test_a_page_says_why_the_check_matters_what_it_reads_and_how_to_fix_it(check_id, catalog):
    page = catalog.page(check_id)
    title, *rest = page.split("\n")
    is_title = title.endswith(".") and len(title) <= 95 and rest[:1] in ([], [""])
    assert is_title, f"{check_id}: the docstring begins with a sentence of at most 95 characters"
    for heading in ("**Why it matters.** ", "**Read from** ", "**To fix it** "):
        assert f"\n{heading}" in page, f"{check_id}: the docstring has no {heading.strip()}"
    assert not any(line.startswith("#") for line in rest)


COMPOSED = ("rule", "health_validation")  # made of other checks
COMPUTED = ("feed",)  # by the arithmetic of a command


def test_a_check_imports_the_model_and_the_evidence_only(check_id):
    source = (ROOT / "checks" / f"{check_id}.py").read_text(encoding="utf-8")
    ours = {line.split()[1] for line in source.splitlines() if line.startswith("from nodevet")}
    assert {".".join(name.split(".")[:2]) for name in ours} <= {
        "nodevet.checking",
        "nodevet.evidence",
        "nodevet.model",
        *(["nodevet.checks"] if check_id in COMPOSED else []),
        *(["nodevet.feed"] if check_id in COMPUTED else []),
    }
    assert "\nimport nodevet" not in source


def test_a_page_says_each_of_its_parts_once(check_id, catalog):
    parts = re.findall(r"^\*\*([^*]+)\*\*", catalog.page(check_id), re.MULTILINE)
    assert len(parts) == len(set(parts))
