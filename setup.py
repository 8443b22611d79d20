"""All of it is in pyproject.toml, but for README.md: on an index page its links lead nowhere
unless they are whole."""

import re
from pathlib import Path

from setuptools import setup

REPOSITORY = "https://github.com/nodevet/nodevet/blob/main/"

readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
setup(
    long_description=re.sub(r"\]\((?![a-z]+:|#)", f"]({REPOSITORY}", readme),
    long_description_content_type="text/markdown",
)
