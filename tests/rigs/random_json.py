"""Real JSON with random JSON in one of its positions."""

import copy
from typing import Any

from hypothesis import strategies as st

scalars = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, 2, 0.0, 1.0, True, -1, 10**30, "", "0", "\x1b[2J", "a\nb", "\0"])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@st.composite
def mangled(
    draw: st.DrawFn, document: Any, *, keys: tuple[str, ...] = (), value: Any = values
) -> Any:
    """The document with `value` in one position, or without it, or with one of `keys`."""
    document = copy.deepcopy(document)
    places: list[tuple[Any, Any]] = [(document, key) for key in keys]

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                walk(node[key])

    walk(document)
    node, key = draw(st.sampled_from(places))
    if draw(st.booleans()) or isinstance(node, list):
        node[key] = draw(value)
    else:
        node.pop(key, None)
    return document
