"""An XML file as elements that know their position; refuses hostile files.

Only expat itself is used, so that the declarations that make a small file large in
memory (entities, default attributes) can be refused. A DTD without them, as
`nvidia-smi -q -x --dtd` writes it, and the DOCTYPE line are accepted; nothing is fetched.
"""

from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from nodevet_sim.state import StateError

SIZE = 64 << 20  # bytes
ELEMENTS = 500_000
REFUSED = "declares entities or default attributes; remove the DOCTYPE"
SAVE = "save what `nvidia-smi -q -x` prints, from <?xml to </nvidia_smi_log>"


@dataclass(frozen=True)
class XmlDocument:
    """A parsed file. `places` has the line and column of every start tag, both from 1."""

    path: Path
    root: Element
    places: dict[Element, tuple[int, int]]

    def error(self, element: Element, message: str) -> StateError:
        """An error about one element."""
        line, column = self.places[element]
        return StateError(f"{self.path}:{line}:{column}: {message}")


class _RefusedXml(Exception):  # noqa: N818
    """Raised inside expat; the message is what the file does."""


def read_document(path: Path) -> XmlDocument:
    """Parse a file of at most 64 MiB, in any encoding that expat or Python knows.

    Raises StateError: `file:line:column: what; what to do`.
    """
    try:
        with path.open("rb") as file:
            data = file.read(SIZE + 1)
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}; give a readable file") from None
    if len(data) > SIZE:
        raise StateError(f"{path}: larger than {SIZE >> 20} MiB; {SAVE}")
    parser, builder = expat.ParserCreate(), TreeBuilder()
    places: dict[Element, tuple[int, int]] = {}

    def place() -> tuple[int, int]:
        return parser.CurrentLineNumber, parser.CurrentColumnNumber + 1

    def start(tag: str, attributes: dict[str, str]) -> None:
        places[builder.start(tag, attributes)] = place()
        if len(places) > ELEMENTS:
            raise _RefusedXml(f"more than {ELEMENTS} elements; {SAVE}")

    def declared(*_: object) -> None:
        raise _RefusedXml(REFUSED)

    def skipped(name: str, _: object) -> None:
        raise _RefusedXml(f"the entity &{name}; is not defined; write the character itself")

    def attribute(_tag: str, _name: str, _type: str, default: str | None, _: object) -> None:
        if default is not None:
            raise _RefusedXml(REFUSED)

    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = declared
    parser.SkippedEntityHandler = skipped
    parser.AttlistDeclHandler = attribute
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        where = f"{path}:{error.lineno}:{error.offset + 1}"
        raise StateError(f"{where}: not XML: {expat.ErrorString(error.code)}; {SAVE}") from None
    except _RefusedXml as error:
        line, column = place()
        raise StateError(f"{path}:{line}:{column}: {error}") from None
    except (LookupError, ValueError) as error:
        raise StateError(f"{path}:1:1: unsupported encoding: {error}; save it as UTF-8") from None
    return XmlDocument(path, builder.close(), places)
