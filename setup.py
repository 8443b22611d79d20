"""What pyproject.toml cannot say: README.md with whole links, which an index page needs, and the
packages by pattern. `checks`, `fixes` and `baselines` lie at the top, where users read them."""

import re
from pathlib import Path

from setuptools import find_packages, setup

REPOSITORY = "https://github.com/nodevet/nodevet"

readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
shown = re.sub(r"(!\[[^]]*\]\()(?![a-z]+:)", rf"\1{REPOSITORY}/raw/main/", readme)
setup(
    long_description=re.sub(r"\]\((?![a-z]+:|#)", f"]({REPOSITORY}/blob/main/", shown),
    long_description_content_type="text/markdown",
    packages=[
        *find_packages(include=["nodevet", "nodevet.*"]),
        *("nodevet.baselines", "nodevet.checks", "nodevet.fixes"),
    ],
)
