"""The table of one host: what it is stands above; what passed stands below, if asked for."""

from msgspec.structs import replace

from nodevet import report
from nodevet.model import HostFacts, Subject, not_applicable, ok

FACTS = HostFacts(
    machine="Dell Inc. PowerEdge XE9680",
    memory_kb=2113538048,
    uptime_s=352800,
    driver="550.90.07",
    gpus={"NVIDIA H100 80GB HBM3": 8},
)


def with_facts(run, *findings):
    (host, *_) = run.hosts
    return replace(run, hosts=(replace(host, facts=FACTS, findings=findings or host.findings),))


def table(run, **options):
    return report.render("table", run, **options).splitlines()


def test_what_one_host_is_stands_above_its_report(cases):
    assert table(with_facts(cases["healthy"]))[:4] == [
        "machine  Dell Inc. PowerEdge XE9680, 2,016 GiB, up 4 d 2 h",
        "GPUs     8 × NVIDIA H100 80GB HBM3",
        "driver   550.90.07",
        "",
    ]


def test_the_head_keeps_to_the_width(cases):
    head = table(with_facts(cases["healthy"]), width=40)[:3]
    assert max(map(len, head)) <= 40
    assert head[0].endswith("…")


def test_several_hosts_have_no_head(cases):
    run = cases["healthy"]
    both = replace(run, hosts=tuple(replace(host, facts=FACTS) for host in run.hosts))
    assert table(both) == table(run)
    assert table(run)[0].startswith("All ok")


def test_what_passed_is_shown_with_its_value_if_asked_for(cases):
    gpus = [Subject(kind="gpu", id=str(index)) for index in range(8)]
    found = (
        *(ok(gpu, check="power_limit", expected=700, actual=700, unit="W") for gpu in gpus),
        ok(check="driver_version", expected=">=550.90", actual="550.127.05"),
        ok(check="xid", expected=[], actual=[]),
        not_applicable(check="mig_mode", why="the GPU has none\x1b[2J"),
    )
    run = with_facts(cases["healthy"], *found)
    assert "power_limit" not in "\n".join(table(run))
    rows = [" ".join(row.split()) for row in table(run, everything=True)[4:8]]
    assert rows == [
        "OK power_limit 700 W gpu001 GPU 0-7",
        "OK driver_version 550.127.05, expected >=550.90 gpu001",
        "OK xid none gpu001",
        r"N/A mig_mode the GPU has none\x1b[2J gpu001",
    ]
