"""What a node answers in the place of nodevet.remote: of every other form, it is a WorkError."""

import getpass
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodevet.fleet import Options
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.executor import WorkError
from nodevet.fleet.protocol import answers
from nodevet.fleet.protocol.answers import MalformedError
from nodevet.model import Host
from nodevet.resource import KINDS, Resource
from nodevet_sim.sshd import KeyPair, Sshd

PYTHON = """#!{python} -ISE
import hashlib, json, sys
stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
stdin.read(int(stdin.readline()))
request = json.loads(stdin.readline())
text = open({said!r}, "rb").read()
told = (request["nonce"], len(text), hashlib.sha256(text).hexdigest())
stdout.write(("\\n\\x1eNODEVET %s %d %s\\n" % told).encode() + text)
stdout.flush()
"""
FILE = Resource(kind="file", name="/etc/motd")
UNIT = Resource(kind="unit", name="x.service")
GOOD = {"mode": 420, "owner": 0, "group": 0, "content": "eA=="}


def look(value: Any, *, exists: Any = True, why: Any = "") -> Any:
    return [{"exists": exists, "value": value, "why": why}]


ODD: list[Any] = [
    [],
    {},
    None,
    7,
    "x",
    [{}],
    [None],
    [["exists", "value", "why"]],
    look(GOOD) * 2,
    look(GOOD, exists="yes"),
    look(GOOD, why=None),
    look(GOOD, why="x" * 5000),
    look(None),
    look([]),
    look({}),
    look({"mode": 420}),
    look({**GOOD, "mode": "0644"}),
    look({**GOOD, "mode": -1}),
    look({**GOOD, "owner": 1 << 40}),
    look({**GOOD, "content": 7}),
    look({**GOOD, "more": "x"}),
    look({**GOOD, "content": "A" * 1_400_000}),
]


class Fake:
    """A node whose python3 answers what it was told to."""

    def __init__(self, worker: SshExecutor, said: Path) -> None:
        self.worker = worker
        self._said = said

    def says(self, result: Any) -> SshExecutor:
        return self.says_bytes(json.dumps({"result": result}).encode())

    def says_bytes(self, text: bytes) -> SshExecutor:
        self._said.write_bytes(text)
        return self.worker


@pytest.fixture(scope="module")
def node(
    sshd: Callable[..., Sshd], key: KeyPair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fake]:
    folder = tmp_path_factory.mktemp("node")
    python, said, known = folder / "python3", folder / "said", folder / "known_hosts"
    python.write_text(PYTHON.format(python=sys.executable, said=str(said)))
    python.chmod(0o755)
    server = sshd()
    known.write_text(server.known_hosts)
    host = Host(name="n1", address=server.address, port=server.port, user=getpass.getuser())
    host = replace(host, key_file=str(key.path), known_hosts=str(known), python=str(python))
    with SshExecutor([host], Options(ssh_config=Path(os.devnull), deadline=30)) as worker:
        worker.open("n1")
        yield Fake(worker, said)


def test_r13_an_odd_answer_of_a_node_is_a_work_error_and_costs_no_session(node: Fake) -> None:
    for odd in ODD:
        worker = node.says(odd)
        with pytest.raises(WorkError, match="malformed response") as told:
            worker.look("n1", [FILE])
        assert told.value.status == "failed" and len(told.value.why) < 600, odd
    for odd in (None, 7, {}, [7], [None], ["unit x"], [["x"], []], [[7]], [["x" * 5000]]):
        with pytest.raises(WorkError, match="malformed response"):
            node.says(odd).managers("n1", [FILE])
    for odd in (None, [], {}, {"held": True}, {"held": True, "path": "/x"}, {"held": 1}):
        with pytest.raises(WorkError, match="malformed response"):
            node.says(odd).lock("n1", "me")
    (seen,) = node.says(look(GOOD)).look("n1", [FILE])
    assert seen.value == GOOD and seen.exists


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'{"error": 7}',
        b'{"result": NaN}',
        b'{"result": ' + b"[" * 100_000,
        b'{"result": [{"exists": true, "value": "\\ud800", "why": ""}]}',
        b'{"result": [{"exists": true, "value": \xff, "why": ""}]}',
    ],
    ids=range(9),
)
def test_r13_invalid_json_from_a_node_is_a_work_error(node: Fake, text: bytes) -> None:
    with pytest.raises(WorkError, match="malformed response") as told:
        node.says_bytes(text).look("n1", [UNIT])
    assert told.value.status == "failed"


def test_r13_an_answer_over_8_mib_is_refused(node: Fake) -> None:
    with pytest.raises(WorkError, match="more than 8 MiB") as told:
        node.says("x" * (9 << 20)).look("n1", [FILE])
    assert told.value.status == "failed"


def test_r13_control_characters_of_a_node_are_escaped(node: Fake) -> None:
    (seen,) = node.says(look(None, exists=False, why="\x1b[2J")).look("n1", [FILE])
    assert seen.why == "\\x1b[2J"
    assert node.says([["unit \x1b]0;x\x07"]]).managers("n1", [FILE]) == {
        FILE.label: ("unit \\x1b]0;x\\x07",)
    }
    with pytest.raises(WorkError, match=r"^\\x1b\[2J$"):
        node.says_bytes(b'{"error": "\\u001b[2J"}').look("n1", [FILE])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["exists", "value", "why", "mode", "target", "loaded", "held", "path"])
            | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(value=JSON, kind=st.sampled_from([*KINDS]))
def test_r13_any_json_is_decoded_or_refused_as_malformed(value: Any, kind: str) -> None:
    resource = Resource(kind=kind, name="x")
    whole = json.dumps(value).encode()
    as_value = json.dumps(look(value)).encode()
    for decode in (
        lambda: answers.states(whole, [resource]),
        lambda: answers.states(as_value, [resource]),
        lambda: answers.managers(whole, [resource]),
        lambda: answers.lock(whole),
        lambda: answers.result(whole),
    ):
        with suppress(MalformedError):
            decode()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "odd",
    [None, {}, [None], [{}], [{"name": 1}], [{"name": "a", "every_s": 0}],
     [{"name": "a", "every_s": "x"}], [{"name": "a", "every_s": -1}], [{"name": "a"}] * 65],
)  # fmt: skip
def test_e22_malformed_agents_are_refused(odd: Any) -> None:
    with pytest.raises(MalformedError):
        answers.agents(json.dumps(odd).encode())


def test_e22_the_name_of_an_agent_is_printable() -> None:
    (found,) = answers.agents(b'[{"name": "\\u001b]0;x", "every_s": 1800}]')
    assert (found.name, found.every_s) == ("\\x1b]0;x", 1800)
