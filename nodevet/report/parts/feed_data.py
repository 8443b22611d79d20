"""What the HTML page about feeding GPUs shows, printable and bounded. Pure."""

from typing import Any

from nodevet.feed.answer import FeedAnswer, NodeAnswer
from nodevet.feed.model import FeedStage
from nodevet.printable import brief
from nodevet.report.parts import feed_chart, feed_text
from nodevet.report.parts.text import count, name

MOST_NODES = 100  # kinds of them; the page would have megabytes
MOST_LOST = 1000
LONGEST = 2000  # columns of one text


def data(answer: FeedAnswer) -> dict[str, Any]:
    """What the template is given."""
    shown = answer.nodes[:MOST_NODES]
    left = sum(len(node.hosts) for node in answer.nodes[MOST_NODES:])
    return {
        "title": brief(answer.workload.name, LONGEST),
        "headline": headline(answer),
        "version": answer.nodevet,
        "nodes": [_node(answer, node) for node in shown],
        "left": f"{count(left, 'more host')} not shown" if left else "",
        "lost": [
            (brief(name(host), LONGEST), brief(why, LONGEST))
            for host, why in list(answer.lost.items())[:MOST_LOST]
        ],
        "stages": [stage.value for stage in FeedStage],
        "heads": feed_text.HEADS,
        "change_heads": feed_text.CHANGE_HEADS,
        "bounds": feed_text.BOUNDS,
        "chart": feed_chart,
    }


def headline(answer: FeedAnswer) -> str:
    """The utilization of the batch that was asked for, of the node where it is lowest."""
    if not answer.nodes:
        return "No host could be read"
    worst = min((node.chosen for node in answer.nodes), key=lambda each: each.utilization.high or 0)
    told = feed_text.utilization(worst.utilization)
    if told == feed_text.UNKNOWN:
        return f"Not known at batch {worst.batch}: see what is missing"
    return f"{told} busy at batch {worst.batch}: {feed_text.binds(worst)} binds"


def _node(answer: FeedAnswer, node: NodeAnswer) -> dict[str, Any]:
    found = feed_chart.by_batch(node), feed_chart.by_workers(node)
    charts = [chart for chart in found if chart]
    return {
        "title": brief(feed_text.subtitle(answer, node), LONGEST),
        "charts": charts,
        "banded": any(chart.least for chart in charts),
        "rows": [
            (feed_text.cells(each), each.binds.value, each.batch == node.at)
            for each in node.batches
        ],
        "bounded": feed_text.bounded(node),
        "facts": [(label, brief(text, LONGEST)) for label, text in feed_text.facts(answer, node)],
        "at": node.at,
        "changes": list(feed_text.changes(node)),
        "nothing": "" if node.changes else feed_text.nothing_to_change(node),
    }
