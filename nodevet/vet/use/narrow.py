"""Some checks of the baselines instead of all: for a quick look, never for a verdict."""

from collections.abc import Sequence

from msgspec.structs import replace

from nodevet.base.errors import UserError
from nodevet.base.problems import did_you_mean
from nodevet.model.baseline import Baseline
from nodevet.vet.use.context import VetContext


def narrow_context(context: VetContext, only: Sequence[str], skip: Sequence[str]) -> VetContext:
    """The context with `only` these checks, or without those to `skip`.

    Raises UserError for a check that no baseline expects, and if no check remains."""
    if not only and not skip:
        return context
    _require_expected(context.baselines, only, "--only")
    _require_expected(context.baselines, skip, "--skip")
    kept = [_narrow_baseline(baseline, only, skip) for baseline in context.baselines]
    if not any(baseline.expectations for baseline in kept):
        raise UserError("--only and --skip leave no check; name another one")
    by_name = {baseline.name: baseline for baseline in kept}
    shipped_baselines = context.shipped_baselines
    return replace(
        context,
        baselines=tuple(kept),
        chosen=by_name[context.chosen.name] if context.chosen else None,
        shipped_baselines=lambda: tuple(
            _narrow_baseline(baseline, only, skip) for baseline in shipped_baselines()
        ),
        only=tuple(only),
        skip=tuple(skip),
    )


def _narrow_baseline(baseline: Baseline, only: Sequence[str], skip: Sequence[str]) -> Baseline:
    expected = tuple(
        expectation
        for expectation in baseline.expectations
        if expectation.check not in skip and (not only or expectation.check in only)
    )
    return replace(baseline, expectations=expected)


def _require_expected(baselines: Sequence[Baseline], names: Sequence[str], option: str) -> None:
    known = sorted(
        {expectation.check for baseline in baselines for expectation in baseline.expectations}
    )
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, "`nodevet list checks` names all checks")
            raise UserError(f"{option} {name}: no baseline here expects this check; {hint}")
