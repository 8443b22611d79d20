"""One Redfish emulator and one ipmi_sim for the tests of a module."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bmcs import Emulator, IpmiSim, hook, ipmi_sim, redfish_emulator
from switched_bmcs import behave

from nodevet.bmc.read import read_section
from nodevet.bmc.secrets import read_secrets
from nodevet.model import Bmc

Read = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with redfish_emulator(tmp_path_factory.mktemp("redfish")) as emulator:
        yield emulator


@pytest.fixture
def redfish(running: Emulator) -> Emulator:
    """An emulator that answers as nobody broke it."""
    running.say()
    return running


@pytest.fixture(scope="module")
def ipmi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IpmiSim]:
    with ipmi_sim(tmp_path_factory.mktemp("ipmi")) as simulator:
        yield simulator


@pytest.fixture
def read() -> Read:
    """The section of a BMC."""

    def section(bmc: Bmc, seconds: float = 120) -> dict[str, Any]:
        return read_section(bmc, read_secrets([bmc]), seconds)

    return section


@pytest.fixture(params=["redfish", "ipmi"])
def bmc(request: pytest.FixtureRequest) -> Iterator[Emulator | IpmiSim]:
    """A running BMC of either kind, whose node obeys."""
    simulated = request.getfixturevalue(request.param)
    behave(simulated)
    yield simulated
    hook(simulated.folder, "", "")
