"""Fixes of a project, as text."""

ONCE, ALWAYS = "/etc/tmpfiles.d/once.conf", "/etc/tmpfiles.d/always.conf"
TRIAL = '''\
"""Try it for one boot, then keep it."""
from nodevet.fixing.model import Fix, PlannedChange, Risk
from nodevet.resource import Resource
from nodevet.resource.file import WriteFile
ONCE, ALWAYS = "/etc/tmpfiles.d/once.conf", "/etc/tmpfiles.d/always.conf"
RULE = "w /sys/kernel/mm/transparent_hugepage/enabled - - - - {}\\n"
def plan(evidence, findings, params):
    rule = RULE.format(params.mode)
    yield PlannedChange(
        expected=params.mode,
        actual=findings[0].actual,
        subjects=("",),
        actions=(WriteFile(path=ONCE, content=rule),),
        keep=(WriteFile(path=ONCE, content=None), WriteFile(path=ALWAYS, content=rule)),
        resources=tuple(Resource(kind="file", name=path) for path in (ONCE, ALWAYS)),
        risk=Risk.REBOOT,
        effective="reboot",
    )
FIX = Fix(plan=plan, risk=Risk.REBOOT)
'''
SET_NOW = '''\
"""Set it now."""
from nodevet.fixing.model import Fix, PlannedChange, Risk
from nodevet.resource import Resource
from nodevet.resource.kernel import WriteKernel
def plan(evidence, findings, params):
    yield PlannedChange(
        expected=params.value,
        actual=findings[0].actual,
        subjects=("",),
        actions=(WriteKernel(path="{path}", value=params.value),),
        resources=(Resource(kind="kernel", name="{path}"),),
        risk=Risk.LIVE,
    )
FIX = Fix(plan=plan, risk=Risk.REBOOT)
'''
