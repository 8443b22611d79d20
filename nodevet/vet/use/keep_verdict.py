"""Keeps the pass of a check of this machine, for `nodevet check @local --max-age`."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import nodevet
from nodevet.base import last_verdict
from nodevet.base.errors import UserError
from nodevet.baseline.library import ENDINGS, shipped_folder
from nodevet.model import Host
from nodevet.model.run import Run
from nodevet.vet.use.context import VetContext


class Keeping:
    """How long the verdict of one check is kept; created before the check begins."""

    def __init__(
        self,
        arguments: Sequence[str],
        most: float,
        hosts: Sequence[Host],
        began: tuple[float, float],
    ) -> None:
        """`most` is in seconds; `began`: see nodevet.base.last_verdict. Raises UserError if a
        verdict on these hosts, or one of any age, cannot be kept."""
        if [host.local and host.root == "/" for host in hosts] != [True]:
            raise UserError(
                "--max-age needs --evidence, or @local as the only host: evidence that is read "
                "now has no age"
            )
        if not math.isfinite(most):
            raise UserError("--max-age none is for --evidence; say how old a verdict may be: 5m")
        self._arguments = arguments
        self._most = most
        self._began = began
        with suppress(OSError, LookupError):  # said once there is something to keep
            last_verdict.prepare()

    def keep(self, run: Run, text: str, context: VetContext, project: Path, *, dated: bool) -> str:
        """Keep the output of a run that passed; a run that failed is repeated each time.

        `dated`: whether its age may follow the last line. Returns why it could not be kept.
        """
        if run.exit_code != 0:
            return ""
        files = {str(path.absolute()) for path in _files(context, project)}
        try:
            last_verdict.remember(
                self._arguments,
                text.encode("utf-8", "backslashreplace"),
                sorted(files),
                max_age=self._most,
                began=self._began,
                show_age=dated,
            )
        except (OSError, LookupError) as error:
            return f"--max-age: this verdict cannot be stored for the next check: {error}"
        return ""


def _files(context: VetContext, project: Path) -> Iterator[Path]:
    """Every file that the verdict depends on, there or not, and every folder in which one more
    would count."""
    package = Path(nodevet.__file__).parent
    for folder in (package, *(project / name for name in ("checks", "fixes"))):
        yield folder
        yield from folder.rglob("*.py")
    for check in context.catalog.ids:
        yield context.catalog.path(check)
        yield context.catalog.path(check).parent
    for folder in (project / "baselines", shipped_folder()):
        yield folder
        yield from (path for path in folder.glob("*") if path.is_file())
    for baseline in context.baselines:
        chain = [Path(name) for name in (baseline.path, *baseline.lineage)]
        yield from chain
        for path in chain:  # a baseline beside this one comes first if it has an extended name
            yield from (path.with_name(other.stem + end) for other in chain for end in ENDINGS)
