"""Whether a node can feed its GPUs, as Markdown: what others wrote stands in code spans."""

from collections.abc import Iterator

from nodevet.feed.answer import FeedAnswer, NodeAnswer
from nodevet.report.parts import feed_text
from nodevet.report.parts.spans import cell, code, table


def document(answer: FeedAnswer, most: int) -> str:
    """At most so many characters: nodes that have no room are counted."""
    text = f"# {code(answer.workload.name)}\n\n"
    for place, node in enumerate(answer.nodes):
        block = "\n".join(_node(answer, node)) + "\n"
        if len(text) + len(block) > most * 0.9:
            left = sum(len(each.hosts) for each in answer.nodes[place:])
            text += f"{left:,} more hosts have no room here.\n\n"
            break
        text += block
    for host, why in answer.lost.items():
        line = f"{code(host)}: not read: {code(why[:500])}\n\n"
        if len(text) + len(line) > most:
            break
        text += line
    return text


def _node(answer: FeedAnswer, node: NodeAnswer) -> Iterator[str]:
    yield f"## {code(feed_text.subtitle(answer, node))}"
    yield ""
    yield from table(feed_text.HEADS, map(feed_text.cells, node.batches))
    if feed_text.bounded(node):
        yield from (feed_text.BOUNDS, "")
    for label, text in feed_text.facts(answer, node):
        yield f"- {label}: {code(text)}"
    yield ""
    if not node.changes:
        yield from (f"{feed_text.nothing_to_change(node)}.", "")
        return
    yield from (f"What to change first, at batch {node.at}; each alone:", "")
    yield from table(
        feed_text.CHANGE_HEADS, ([cell(text), *rest] for text, *rest in feed_text.changes(node))
    )
