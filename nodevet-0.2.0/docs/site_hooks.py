"""What mkdocs does not do by itself: the pages of the checks in the navigation, and links that
leave this folder, such as one to the repository's inventories, on the site."""

import re
from pathlib import Path
from typing import Any

CHECKS = "checks/"


def on_config(config: Any) -> Any:
    """In the navigation, `checks/` stands for all pages of that folder, its README.md first."""
    for section in config["nav"]:
        for pages in section.values() if isinstance(section, dict) else ():
            for entry in pages:
                if isinstance(entry, dict) and CHECKS in entry.values():
                    folder = Path(config["docs_dir"], CHECKS)
                    names = sorted(path.name for path in folder.glob("*.md"))
                    names.sort(key=lambda name: name != "README.md")
                    entry.update({key: [CHECKS + name for name in names] for key in entry})
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """`](../X)` of a page in docs/ is a file of the repository."""
    if "/" in page.file.src_uri:
        return markdown
    return re.sub(r"\]\(\.\./", f"]({config['extra']['repository']}/blob/main/", markdown)
