"""What pyproject.toml cannot say: README.md with whole links, which an index page needs, and the
packages and the files of share/ by pattern. `checks`, `fixes` and `baselines` lie at the top, where
users read them."""

import re
from pathlib import Path

from setuptools import find_packages, setup

REPOSITORY = "https://github.com/nodevet/nodevet"

TOP = Path(__file__).parent

readme = (TOP / "README.md").read_text(encoding="utf-8")
shown = re.sub(r"(!\[[^]]*\]\()(?![a-z]+:)", rf"\1{REPOSITORY}/raw/main/", readme)
setup(
    long_description=re.sub(r"\]\((?![a-z]+:|#)", f"]({REPOSITORY}/blob/main/", shown),
    long_description_content_type="text/markdown",
    packages=[
        *find_packages(include=["nodevet", "nodevet.*"]),
        *("nodevet.baselines", "nodevet.checks", "nodevet.fixes"),
    ],
    data_files=[  # the man page and the scripts of shells
        (str(path.parent.relative_to(TOP)), [str(path.relative_to(TOP))])
        for path in sorted((TOP / "share").rglob("*"))
        if path.is_file()
    ],
)
