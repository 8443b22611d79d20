import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import example, given
from hypothesis import strategies as st

from nodevet.base.nodeset import NodesetError, Term, expand, terms


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu1", ["gpu1"]),
        ("gpu[1-3]", ["gpu1", "gpu2", "gpu3"]),
        ("gpu[008-011]", ["gpu008", "gpu009", "gpu010", "gpu011"]),
        ("gpu[9-11]", ["gpu9", "gpu10", "gpu11"]),
        ("gpu[00-02]", ["gpu00", "gpu01", "gpu02"]),
        ("gpu[1-9/4,20]", ["gpu1", "gpu5", "gpu9", "gpu20"]),
        ("r[1-2]n[1-2].dc", ["r1n1.dc", "r1n2.dc", "r2n1.dc", "r2n2.dc"]),
        ("b,a,b", ["b", "a"]),
        ("gpu[3,1]", ["gpu3", "gpu1"]),
        ("a , b", ["a", "b"]),
    ],
)
def test_a_nodeset_expands_in_its_own_order(text, names):
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("gpu[1-", 4, "'[' is not closed"),
        ("gpu1]", 5, "']' closes nothing"),
        ("gpu[1-3]]", 9, "']' closes nothing"),
        ("a,gpu[5-1]", 7, "5-1 runs backwards"),
        ("gpu[]", 5, "not a range of numbers: nothing"),
        ("gpu[1,x]", 7, "not a range of numbers: x"),
        ("gpu[1--3]", 5, "not a range of numbers: 1--3"),
        ("gpu[1-3/0]", 5, "1-3/0 has no step"),
        (
            "gpu[01-100]",
            5,
            "01-100 is padded to two widths; give both ends the same number of digits",
        ),
        ("gpu[1-9999999999999]", 5, "a number with too many digits"),
        ("gpu[1-999999999]", 1, "gpu[1-999999999] stands for more than 100,000 hosts"),
        ("n[1-400]m[1-400]", 1, "n[1-400]m[1-400] stands for more than 100,000 hosts"),
        ("", 1, "a host or group is missing here"),
        ("a,,b", 3, "a host or group is missing here"),
        ("a,", 3, "a host or group is missing here"),
        ("a!", 3, "a host or group is missing here"),
        ("a!b", 2, "only commas may join hosts here, not !"),
    ],
)
def test_an_invalid_nodeset_is_reported_with_its_column(text, column, problem):
    with pytest.raises(NodesetError) as raised:
        expand(text)
    assert (raised.value.column, str(raised.value)) == (column, problem)


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "a b", "a\x1bc", "a\nb", "ä", "a" * 254, "a..b"]
)
def test_invalid_host_names_are_refused(name):
    with pytest.raises(NodesetError, match="host name"):
        expand(name)


def test_many_terms_are_bounded_together():
    with pytest.raises(NodesetError, match="more than 100,000 hosts"):
        expand("a[1-60000],b[1-60000]")


def test_operators_are_read_from_left_to_right():
    assert list(terms("!@a,b[1,2]&c")) == [
        Term("!", "@a", 2),
        Term(",", "b[1,2]", 5),
        Term("&", "c", 12),
    ]


def test_a_comma_before_an_operator_only_separates():
    assert [term[:2] for term in terms("a,!b")] == [(",", "a"), ("!", "b")]


NUMBER = st.integers(0, 120)
WIDTH = st.integers(0, 4)


@st.composite
def ranges(draw):
    first, size, step, width = draw(NUMBER), draw(NUMBER), draw(st.integers(1, 5)), draw(WIDTH)
    ends = [f"{first:0{width}d}", f"{first + size:0{width}d}"]
    return "-".join(ends) + (f"/{step}" if step > 1 else "")


@st.composite
def nodesets(draw):
    parts = draw(st.lists(ranges() | NUMBER.map(str), min_size=1, max_size=3))
    return f"n[{','.join(parts)}]"


@given(nodesets())
@example("n[0-0]")
@example("n[00-10]")
def test_nodesets_expand_as_in_clustershell(text):
    try:
        known = set(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except Exception:
        with pytest.raises(NodesetError):
            expand(text)
    else:
        assert set(expand(text)) == known
