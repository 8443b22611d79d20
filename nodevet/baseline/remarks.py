"""The comments of a YAML file: why a line says what it says."""

from collections.abc import Mapping

import yaml


def remarks(text: str) -> Mapping[int, str]:
    """The comments of each line that has content: those directly above it and the one behind it.

    Lines are counted from 1.

    >>> remarks("# quiet\\na: 1 # at most\\nb: 'x # y'\\n")
    {2: 'quiet at most'}
    """
    ends: dict[int, int] = {}  # of what is no comment, by line
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        for inner in range(token.start_mark.line, token.end_mark.line):
            if isinstance(token, yaml.ScalarToken):  # a text of several lines
                ends[inner] = len(text)
        mark = token.end_mark
        ends[mark.line] = max(mark.column, ends.get(mark.line, 0))
    found: dict[int, str] = {}
    above: list[str] = []
    for number, line in enumerate(text.splitlines()):
        end = ends.get(number, 0)
        _, behind, comment = line[end:].partition("#")
        if end == 0 and behind and not line[: line.index("#")].strip():
            above.append(comment.strip())
            continue
        told = " ".join(filter(None, (*above, comment.strip() if behind else "")))
        if told and line.strip():
            found[number + 1] = told
        above = []
    return found
