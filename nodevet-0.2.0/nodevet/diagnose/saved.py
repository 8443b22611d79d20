"""A saved diagnosis, for `nodevet report`."""

from nodevet.diagnose.model import SCHEMA, Diagnosis
from nodevet.diagnose.sheet import diagnosis_sheet
from nodevet.document.kinds import DocumentKind
from nodevet.sheet.model import Sheet
from nodevet.vet.use.earlier import SavedKind, of_schema


def parse_diagnosis(text: bytes) -> Diagnosis:
    """A diagnosis from its JSON form. Raises ReportError."""
    return of_schema(text, SCHEMA, Diagnosis, "diagnosis")


def _sheet(diagnosis: Diagnosis, everything: bool) -> Sheet:
    return diagnosis_sheet(diagnosis, rules=everything)


SAVED = SavedKind(DocumentKind.DIAGNOSIS, "diagnosis", "diagnose", parse_diagnosis, _sheet)
