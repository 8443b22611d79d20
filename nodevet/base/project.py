"""A user's own folder of baselines, checks and fixes, and whether nodevet may use its files.

A file that other users may change is used only if the command line accepts it: data with
`--project DIR`, code with `--project-code` as well, and code never as root.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nodevet.base.trust import distrust, shared_folder

CODE = ("checks", "fixes")
DATA = ("baselines",)
RULES = ("allowed_signers", "approval.yaml")
ENDINGS = (".py", ".yaml", ".yml")


class Project(NamedTuple):
    """The folder, and what the command line accepts even if other users may change it."""

    folder: Path = Path()
    named: bool = False  # --project DIR: accept its data
    code: bool = False  # --project-code: accept its code, too

    @property
    def paths(self) -> Iterator[Path]:
        """Every file and folder that nodevet uses without being told its name."""
        for name in (*CODE, *DATA):
            folder = self.folder / name
            if folder.is_dir():
                yield folder
                yield from sorted(path for path in folder.iterdir() if path.suffix in ENDINGS)
        for name in RULES:
            path = self.folder / name
            if path.exists() or path.is_symlink():
                yield path

    def refusal(self) -> str:
        """Why nodevet does not use this project and how to accept it, or ""."""
        try:
            paths = list(self.paths)
            refusals = filter(None, map(self._refusal, paths))
            return next(refusals, "")
        except OSError as error:
            return f"{error.filename}: cannot be read: {error.strerror}"

    def _refusal(self, path: Path) -> str:
        return self.rules_refusal(path) if path.name in RULES else self.data_refusal(path)

    def rules_refusal(self, path: Path) -> str:
        """Why nodevet does not use this file of rules for approvals and how to accept it, or "".

        Not in a folder such as /tmp: others may add rules there, also while a plan is applied.
        Raises OSError.
        """
        if (why := self.data_refusal(path)) or self.named or not (shared := shared_folder(path)):
            return why
        return (
            f"{shared}: others may create files beside {path.absolute()}, so nodevet does not "
            "use it; keep the project in a folder of its own"
        )

    def data_refusal(self, path: Path, *, must_exist: bool = True) -> str:
        """Why nodevet does not read a file as data and how to accept it, or ""."""
        if self.named and self._holds(path):
            return ""
        why = distrust(path, must_exist=must_exist)
        if not why:
            return ""
        refusal = f"{why}, so nodevet does not use {path.absolute()}; "
        if not self._holds(path):
            return f"{refusal}it lies outside of the project: put a copy of it into the project"
        folder = _typed(self.folder)
        return f"{refusal}if you accept the data of that folder, type --project {folder}"

    def code_refusal(self, path: Path) -> str:
        """Why nodevet does not run a file and how to accept it, or ""."""
        why = distrust(path, must_exist=True)
        if not why or (self.code and os.geteuid() != 0):
            return ""
        folder = _typed(self.folder)
        if os.geteuid() == 0:
            return (
                f"{why}, so root does not run {path.absolute()}: run nodevet as another user "
                "(setpriv --reuid, docker run --user), or use a copy that only root may write "
                f"(cp -r {folder} COPY && chmod -R go-w COPY)"
            )
        return (
            f"{why}, so nodevet does not run {path.absolute()}; if you accept the code of that "
            f"folder, type --project {folder} --project-code"
        )

    def _holds(self, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to(self.folder.resolve())
        except (OSError, RuntimeError):  # links in a circle
            return False


def _typed(folder: Path) -> str:
    import shlex  # only for refusals

    return shlex.quote(str(folder))
