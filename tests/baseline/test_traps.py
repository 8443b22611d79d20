"""Each trap of YAML, and each wrong value: the exact sentence at the exact position."""

import pytest

HEAD = "nodevet: 1\n"

READERS = "to some YAML readers and text to others"
BOOLEAN = f"without quotes is a boolean {READERS}"
BASE_60 = "without quotes is a base-60 number to some YAML readers"
PLAIN = "write a plain decimal number, or"
MEANT = "if text is meant"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("on", f'on {BOOLEAN}; write true, or "on" {MEANT}'),
        ("off", f'off {BOOLEAN}; write false, or "off" {MEANT}'),
        ("yes", f'yes {BOOLEAN}; write true, or "yes" {MEANT}'),
        ("No", f'No {BOOLEAN}; write false, or "No" {MEANT}'),
        ("y", f'y {BOOLEAN}; write true, or "y" {MEANT}'),
        ("n", f'n {BOOLEAN}; write false, or "n" {MEANT}'),
        ("True", f'True {BOOLEAN}; write true, or "True" {MEANT}'),
        (
            "0777",
            "0777 without quotes is an octal number to some YAML readers; "
            f'write 777, or "0777" {MEANT}',
        ),
        ("12:30", f'12:30 {BASE_60}; write "12:30"'),
        ("0000:19:00.0", f'0000:19:00.0 {BASE_60}; write "0000:19:00.0"'),
        (
            "0x1f",
            "0x1f without quotes is a hexadecimal, octal or binary number "
            f'{READERS}; {PLAIN} "0x1f" {MEANT}',
        ),
        (
            "1_000",
            f'1_000 without quotes is a number with underscores {READERS}; {PLAIN} "1_000" {MEANT}',
        ),
        (
            "1e3",
            f'1e3 without quotes is a number with an exponent {READERS}; {PLAIN} "1e3" {MEANT}',
        ),
        (
            ".5",
            ".5 without quotes is a number without digits on both sides of the point "
            f'{READERS}; {PLAIN} ".5" {MEANT}',
        ),
        (".inf", ".inf is not a number that can be compared; write a plain decimal number"),
        (
            "1234567890123456789012",
            "a number of more than 18 digits; "
            "write a smaller one, or quotes around it if text is meant",
        ),
    ],
)
def test_a_word_on_which_yaml_readers_disagree(problems_of, word, message):
    assert problems_of(f"{HEAD}expect:\n  switch: {word}\n") == [
        f"x.yaml:3:11: expect.switch: {message}"
    ]


def test_an_unquoted_version_is_a_number(problems_of):
    assert problems_of(f"{HEAD}expect:\n  version: 550.10\n") == [
        "x.yaml:3:12: expect.version: must be text, not 550.10; "
        '550.10 without quotes is the number 550.1; write "550.10"'
    ]


def test_a_quoted_word_is_text(shelf):
    shelf.write(x=f'{HEAD}expect: {{version: "on"}}\n')
    (baseline,) = shelf.load("x")
    assert baseline.expectations[0].params.version == "on"


@pytest.mark.parametrize("word", ["550.90.07", "2026-12-31", "==550.*", "10de:2330", "v1"])
def test_text_that_every_yaml_reader_takes_as_text_needs_no_quotes(shelf, word):
    shelf.write(x=f"{HEAD}expect:\n  version: {word}\n")
    (baseline,) = shelf.load("x")
    assert baseline.expectations[0].params.version == word


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{HEAD}title: a\nexpect: {{}}\ntitle: b\n",
            "x.yaml:4:1: title: is given twice, first on line 2; keep one of the two",
        ),
        (
            f"{HEAD}expect:\n  number: 1\n  switch: true\n  number: 2\n",
            "x.yaml:5:3: expect.number: is given twice, first on line 3; keep one of the two",
        ),
        (
            f"{HEAD}expect:\n\tnumber: 8\n",
            "x.yaml:3:1: YAML does not allow a tab here; indent with spaces",
        ),
        (
            f"{HEAD}expect:\n  number: 8\n\tswitch: true\n",
            "x.yaml:4:1: YAML does not allow a tab here; indent with spaces",
        ),
        (
            f"{HEAD}<<: {{title: a}}\n",
            "x.yaml:2:1: merge keys (<<) are not supported; write the fields out",
        ),
        (
            f"{HEAD}title: !!str a\n",
            "x.yaml:2:8: title: tags such as !!str are not read; "
            "put text that begins with ! in quotes, and remove what is meant as a tag",
        ),
        (
            f"{HEAD}expect: !mine {{}}\n",
            "x.yaml:2:9: expect: tags such as !mine are not read; "
            "put text that begins with ! in quotes, and remove what is meant as a tag",
        ),
        (
            f"{HEAD}---\nnodevet: 1\n",
            "x.yaml:2:1: a second document begins; keep one document in one file",
        ),
        (
            "%YAML 1.2\n---\nnodevet: 1\n",
            "x.yaml:1:1: a line that begins with % is not supported; remove the line",
        ),
        ("", "x.yaml:1:1: the file is empty; begin with the line: nodevet: 1"),
        ("# only this\n", "x.yaml:1:1: the file is empty; begin with the line: nodevet: 1"),
        (
            "- nodevet\n",
            "x.yaml:1:1: the file holds a list, not keys with values; "
            "begin with the line: nodevet: 1",
        ),
        (
            "nodevet\n",
            "x.yaml:1:1: the file holds a single value, not keys with values; "
            "begin with the line: nodevet: 1",
        ),
        (f"{HEAD}? [a]\n: 1\n", "x.yaml:2:3: a key must be text; write key: value"),
        (
            f"{HEAD}? \n: 1\n",
            "x.yaml:2:2: a key is missing before the colon; write key: value",
        ),
        (
            f"{HEAD}expect: &all\n  number: *all\n",
            "x.yaml:3:11: expect.number: *all refers to itself; write the value out",
        ),
        (
            f"{HEAD}expect:\n  number: *eight\n",
            "x.yaml:3:11: expect.number: *eight refers to nothing; "
            "define it with &eight above, or put the text in quotes",
        ),
        (
            f"{HEAD}title: a: b\n",
            "x.yaml:2:9: is not YAML: mapping values are not allowed in this context; "
            "put text that holds a colon and a space in quotes",
        ),
        (
            f"{HEAD}title: @home\n",
            "x.yaml:2:8: is not YAML: found character that cannot start any token; "
            "put text that begins with @ in quotes",
        ),
        (
            f"{HEAD}applies: {{hosts: gpu[1-2]}}\n",
            "x.yaml:2:21: is not YAML: did not find expected ',' or '}'; "
            "close the bracket, and put text that holds brackets in quotes",
        ),
        (
            f"{HEAD}expect:\n  version: >=550\n",
            "x.yaml:3:13: is not YAML: did not find expected comment or line break; "
            "put text that begins with > or | in quotes",
        ),
        (
            f"{HEAD}expect:\n  version: !=550\n",
            "x.yaml:3:12: expect.version: tags such as !=550 are not read; "
            "put text that begins with ! in quotes, and remove what is meant as a tag",
        ),
        (
            f'{HEAD}title: "a\n',
            "x.yaml:3:1: is not YAML: found unexpected end of stream; close the quote",
        ),
        (
            f"{HEAD}title: a\n  - b: c\n d: 1\n",
            "x.yaml:3:6: is not YAML: mapping values are not allowed in this context; "
            "put text that holds a colon and a space in quotes",
        ),
    ],
)
def test_a_file_that_is_not_one_plain_mapping(problems_of, text, message):
    assert problems_of(text) == [message]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"\xef\xbb\xbfnodevet: 1\n",
            "x.yaml:1:1: begins with a UTF-8 byte order mark; "
            "save it as UTF-8 without a byte order mark",
        ),
        (
            "nodevet: 1\n".encode("utf-16"),
            "x.yaml:1:1: begins with a UTF-16 byte order mark; "
            "save it as UTF-8 without a byte order mark",
        ),
        (
            b"nodevet: 1\ntitle: caf\xe9\n",
            "x.yaml:2:11: byte 0xe9 is not UTF-8; save the file as UTF-8",
        ),
        (
            b"nodevet: 1\ntitle: a\0b\n",
            "x.yaml:2:9: a NUL byte is not allowed here; "
            'remove it; in double quotes it may be written as an escape, such as "\\t"',
        ),
        (
            b"nodevet: 1\r\ntitle: a\x1b[31m\r\n",
            "x.yaml:2:9: the character U+001B is not allowed here; "
            'remove it; in double quotes it may be written as an escape, such as "\\t"',
        ),
    ],
)
def test_bytes_that_are_not_plain_utf_8_are_reported(problems_of, data, message):
    assert problems_of(data) == [message]


EXPLAIN = "shows its fields"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "link: {generation: 5, width: 12}",
            "3:32: expect.link.width: must be one of 1, 2, 4, 8, 16, 32, not 12; "
            f"`nodevet explain link` {EXPLAIN}",
        ),
        (
            "link: {generation: best}",
            "3:22: expect.link.generation: must be one of 1, 2, 3, 4, 5, max, "
            f'not "best"; `nodevet explain link` {EXPLAIN}',
        ),
        (
            "link: {generation: maximum}",
            "3:22: expect.link.generation: must be one of 1, 2, 3, 4, 5, max, "
            'not "maximum"; did you mean max?',
        ),
        (
            "link: {generation: 5, widht: 16}",
            "3:25: expect.link.widht: is not a known key here; did you mean width?",
        ),
        ("link: {width: 16}", "3:3: expect.link: generation is missing; add it"),
        (
            "link: 5",
            "3:3: expect.link: takes no plain value; write it as a mapping of: generation, width",
        ),
        (
            "number: eight",
            '3:11: expect.number: must be a whole number, not "eight"; '
            f"`nodevet explain number` {EXPLAIN}",
        ),
        (
            'number: "8"',
            '3:11: expect.number: must be a whole number, not "8"; write 8 without quotes',
        ),
        (
            "number: 8.5",
            "3:11: expect.number: must be a whole number, not 8.5; "
            f"`nodevet explain number` {EXPLAIN}",
        ),
        (
            "number: 65",
            f"3:11: expect.number: must be at most 64, not 65; `nodevet explain number` {EXPLAIN}",
        ),
        (
            "number: {count: 8, minimum: 4}",
            "3:3: expect.number: give either count or minimum; not both",
        ),
        (
            "switch: 1",
            "3:11: expect.switch: must be true or false, not 1; "
            f"`nodevet explain switch` {EXPLAIN}",
        ),
        (
            'switch: "true"',
            '3:11: expect.switch: must be true or false, not "true"; write true without quotes',
        ),
        ("version: 550", '3:12: expect.version: must be text, not 550; write "550"'),
        (
            "version: [a]",
            f"3:12: expect.version: must be text, not a list; `nodevet explain version` {EXPLAIN}",
        ),
        ("version: true", '3:12: expect.version: must be text, not true; write "true"'),
        (
            "zones: {zones: {0: {cpu: 0-3}}}",
            "3:23: expect.zones.zones.0.cpu: is not a known key here; did you mean cpus?",
        ),
        (
            "zones: {zones: {a: {cpus: 0-3}}}",
            "3:19: expect.zones.zones.a: the key must be text that matches ^[0-9]+$; "
            f"`nodevet explain zones` {EXPLAIN}",
        ),
        (
            "zones: 3",
            "3:10: expect.zones: must be platform or a mapping, not 3; "
            f"`nodevet explain zones` {EXPLAIN}",
        ),
        (
            "zones: {zones: platform, tolerance: some}",
            "3:39: expect.zones.tolerance: must be a number or none, "
            f'not "some"; `nodevet explain zones` {EXPLAIN}',
        ),
        ("nubmer: 8", "3:3: expect.nubmer: no check has this name; did you mean number?"),
        (
            "something_else: 8",
            "3:3: expect.something_else: no check has this name; `nodevet list checks` names them",
        ),
    ],
)
def test_an_expectation_that_its_check_refuses_is_reported(problems_of, line, message):
    found = problems_of(f"{HEAD}expect:\n  {line}\n")
    assert f"x.yaml:{message}" in found
    assert all(":3:" in problem for problem in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: a\n", "1:1: nodevet: the version of the format is missing; add: nodevet: 1"),
        (
            "nodevet: 2\n",
            "1:10: nodevet: the version of the format is 2; this nodevet reads 1; "
            "write nodevet: 1, or upgrade nodevet",
        ),
        (
            "nodevet: 1.0\n",
            "1:10: nodevet: the version of the format is 1.0; this nodevet reads 1; "
            "write nodevet: 1, or upgrade nodevet",
        ),
        (
            f"{HEAD}extend: a\n",
            "2:1: extend: is not a known key here; did you mean extends?",
        ),
        (f"{HEAD}extends:\n", "2:9: extends: must be text or a list, not null"),
        (f"{HEAD}title: 5\n", '2:8: title: must be text, not 5; write "5"'),
        (
            f"{HEAD}applies: {{}}\n",
            "2:10: applies: says nothing; give hosts, groups or gpu, or remove it",
        ),
        (
            f"{HEAD}applies: {{gpu: {{device: H100}}}}\n",
            '2:25: applies.gpu.device: must be a PCI id such as "10de:2330": '
            "vendor:device, four hex digits each",
        ),
        (
            f"{HEAD}applies: {{gpu: {{device: [10de:2330, 2331]}}}}\n",
            '2:37: applies.gpu.device[1]: must be text, not 2331; write "2331"',
        ),
        (
            f"{HEAD}applies: {{gpu: {{cuont: 8}}}}\n",
            "2:17: applies.gpu.cuont: is not a known key here; did you mean count?",
        ),
        (
            f'{HEAD}applies: {{hosts: "n[1-999999999]"}}\n',
            "2:18: applies.hosts: is not a nodeset (n[1-999999999] stands for more than 100,000 "
            "hosts); write it like gpu[001-128]",
        ),
        (
            f'{HEAD}applies: {{hosts: "n[1-"}}\n',
            "2:18: applies.hosts: is not a nodeset ('[' is not closed); write it like gpu[001-128]",
        ),
        (
            f'{HEAD}applies: {{hosts: "@all"}}\n',
            "2:18: applies.hosts: must be host names such as gpu[001-128]; "
            "join several with commas",
        ),
        (
            f"{HEAD}expect: {{number: 8}}\nseverity: {{number: high}}\n",
            '3:20: severity.number: must be one of shadow, info, warning, critical, not "high"',
        ),
        (
            f"{HEAD}severity: {{nubmer: info}}\n",
            "2:12: severity.nubmer: no check has this name; did you mean number?",
        ),
        (
            f"{HEAD}fix: [nubmer]\n",
            "2:7: fix[0]: no check has this name; did you mean number?",
        ),
        (f"{HEAD}fix: {{number: 1}}\n", "2:15: fix.number: must be true or false, not 1"),
        (
            f"{HEAD}fix: number\n",
            '2:6: fix: must be a list of check ids or check ids with true or false, not "number"',
        ),
    ],
)
def test_a_key_of_the_file_that_is_wrong(problems_of, text, message):
    assert problems_of(text) == [f"x.yaml:{message}"]


def test_each_value_that_a_rule_refuses_is_reported(problems_of):
    text = f"{HEAD}applies: {{hosts: ['@all', n1, 'n['], groups: [' ']}}\n"
    assert [found.partition(": ")[0] for found in problems_of(text)] == [
        "x.yaml:2:19",
        "x.yaml:2:31",
        "x.yaml:2:47",
    ]


def test_a_waiver_that_is_wrong_in_every_field(problems_of):
    text = """\
nodevet: 1
waivers:
  - check: nubmer
    owner: " "
    until: 31.12.2026
    hosts: []
    reasn: because
"""
    assert problems_of(text) == [
        "x.yaml:3:5: waivers[0]: reason is missing; add it",
        "x.yaml:3:5: waivers[0]: names no accepted value, so it would also cover a worse one; "
        "add accepts: with the value as the report shows it (accepts: x8), or "
        "any: true",
        "x.yaml:3:12: waivers[0].check: no check has this name; did you mean number?",
        'x.yaml:4:12: waivers[0].owner: must be text that is not empty, not " "',
        'x.yaml:5:12: waivers[0].until: must be a date such as 2026-12-31, not "31.12.2026"',
        "x.yaml:6:12: waivers[0].hosts: must be a list of at least 1, not an empty list; "
        "remove it, or fill it in",
        "x.yaml:7:5: waivers[0].reasn: is not a known key here; did you mean reason?",
    ]


WAIVER = (
    "nodevet: 1\nwaivers:\n  - check: number\n    owner: a\n    reason: b\n    until: 2026-12-31\n"
)
UNLIMITED = (
    "names no accepted value, so it would also cover a worse one; "
    "add accepts: with the value as the report shows it (accepts: x8), or any: true"
)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("", f"3:5: waivers[0]: {UNLIMITED}"),
        ("    accepts: ~\n", f"3:5: waivers[0]: {UNLIMITED}"),
        ("    any: false\n", f"3:5: waivers[0]: {UNLIMITED}"),
        (
            "    accepts: 7\n    any: true\n",
            "8:5: waivers[0].any: `any` covers every value, and `accepts` only one; "
            "keep one of the two",
        ),
        (
            "    any: 7\n",
            "7:10: waivers[0].any: must be true or false, not 7",
        ),
        (
            "    accepts: on\n",
            "7:14: waivers[0].accepts: on without quotes is a boolean to some YAML readers and "
            'text to others; write true, or "on" if text is meant',
        ),
    ],
)
def test_d12_a_waiver_without_a_value_is_an_error_with_its_place(problems_of, lines, told):
    assert problems_of(WAIVER + lines) == [f"x.yaml:{told}"]


@pytest.mark.parametrize("value", ["7", "x8", "false", "[79, 48]", "{a: 1}", "any"])
def test_d12_a_waiver_with_a_value_is_read(shelf, value):
    shelf.write(x=f"{WAIVER}    accepts: {value}\n")
    (waiver,) = shelf.load("x")[0].waivers
    assert (waiver.accepts is not None, waiver.any) == (True, False)


def test_every_problem_of_every_file_is_reported_at_once(shelf):
    shelf.write(
        base="nodevet: 1\nexpect: {switch: on, nubmer: 3}\n",
        one="nodevet: 1\nextends: base\ntitle: 3\n",
        two="nodevet: 1\nextends: [bsae]\nexpect:\n  - a\n",
        three="nodevet: 1\ntitle: [\n",
    )
    assert shelf.problems("one", "two", "three", "four") == [
        'one.yaml:3:8: title: must be text, not 3; write "3"',
        "base.yaml:2:18: expect.switch: on without quotes is a boolean to some YAML readers "
        'and text to others; write true, or "on" if text is meant',
        "base.yaml:2:22: expect.nubmer: no check has this name; did you mean number?",
        'two.yaml:2:11: extends: "bsae": no baseline has this name; did you mean base?',
        "two.yaml:4:3: expect: must be a mapping, not a list",
        "three.yaml:3:1: is not YAML: did not find expected node content; "
        "look at this line and the one before",
        "four: no baseline has this name; `nodevet list baselines` names them",
    ]


def test_messages_escape_and_shorten_the_values_that_they_quote(problems_of):
    (problem,) = problems_of(f'{HEAD}expect:\n  number: "\\e[2J{"x" * 500}"\n')
    assert problem.isprintable()
    assert "\\x1b[2J" in problem and "…" in problem and len(problem) < 300
