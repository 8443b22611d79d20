"""Errors of CPU, memory and PCIe in the words of the kernels from 3.10 to 6.x."""

# ruff: noqa: E501 - lines as the kernel prints them

import textwrap
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import kernel_log
from nodevet.remote.probe.kernel_events import Events, LogReader


def log_of(text: str) -> list[str]:
    return [line for line in textwrap.dedent(text).splitlines() if line]


def told(lines: list[str]) -> list[tuple[Any, ...]]:
    """(kind, address, severity, count) of each event, by their order."""
    events = Events()
    reader = LogReader(events.keep)
    for second, line in enumerate(lines):
        reader.add(float(second), line)
    reader.end()
    return [
        (each["kind"], each["bus_id"], each["severity"], each["count"])
        for each in ({"bus_id": None, "severity": None, **record} for record in events.records())
    ]


GHES_PCIE = """
    {7}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 5
    {7}[Hardware Error]: event severity: recoverable
    {7}[Hardware Error]:  Error 0, type: fatal
    {7}[Hardware Error]:   section_type: PCIe error
    {7}[Hardware Error]:   port_type: 0, PCIe end point
    {7}[Hardware Error]:   version: 3.0
    {7}[Hardware Error]:   command: 0x0002, status: 0x0010
    {7}[Hardware Error]:   device_id: 0000:04:00.0
    {7}[Hardware Error]:   slot: 0
    {7}[Hardware Error]:   secondary_bus: 0x00
    {7}[Hardware Error]:   vendor_id: 0x14e4, device_id: 0x165f
    {7}[Hardware Error]:   class_code: 020000
    {7}[Hardware Error]:   aer_uncor_status: 0x00100000, aer_uncor_mask: 0x00010000
    {7}[Hardware Error]:   TLP Header: 40000001 0000020f 90028090 00000000
    """
FIRMWARE_FIRST = """
    pcieport 0000:c9:02.0: AER: aer_status: 0x00200000, aer_mask: 0x00100020
    pcieport 0000:c9:02.0:    [21] ACSViol                (First)
    pcieport 0000:c9:02.0: AER: aer_layer=Transaction Layer, aer_agent=Receiver ID
    pcieport 0000:c9:02.0: AER: aer_uncor_severity: 0x00463010
    pcieport 0000:c9:02.0: AER: broadcast error_detected message
    pcieport 0000:c9:02.0: AER: broadcast mmio_enabled message
    pcieport 0000:c9:02.0: AER: broadcast resume message
    pcieport 0000:c9:02.0: AER: device recovery successful
    """
CORRECTED_BY_FIRMWARE = """
    nvme 0000:2c:00.0: AER: aer_status: 0x00002001, aer_mask: 0x00000000
    nvme 0000:2c:00.0: AER:    [ 0] RxErr                  (First)
    nvme 0000:2c:00.0: AER:    [13] NonFatalErr
    nvme 0000:2c:00.0: AER: aer_layer=Physical Layer, aer_agent=Receiver ID
    """
LOGS = {
    # 3.10: drivers/pci/pcie/aer/aerdrv_errprint.c
    "aer 3.10": (
        """
        pcieport 0000:00:01.0: AER: Multiple Corrected error received: id=1900
        nvidia 0000:19:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=1900(Receiver ID)
        nvidia 0000:19:00.0:   device [10de:1db6] error status/mask=00000001/0000a000
        nvidia 0000:19:00.0:    [ 0] Receiver Error         (First)
        pcieport 0000:00:01.0: AER: Uncorrected (Non-Fatal) error received: id=0008
        pcieport 0000:00:01.0: broadcast error_detected message
        pcieport 0000:00:01.0: broadcast mmio_enabled message
        pcieport 0000:00:01.0: broadcast resume message
        pcieport 0000:00:01.0: AER: Device recovery successful
        """,
        [("aer", "0000:19:00.0", "corrected", 2), ("aer", "0000:00:01.0", "nonfatal", 1)],
    ),
    # 4.19 to 6.6: drivers/pci/pcie/aer.c, err.c
    "aer 5.15": (
        """
        pcieport 0000:17:01.0: AER: enabled with IRQ 122
        pcieport 0000:17:01.0: AER: Uncorrected (Fatal) error received: 0000:19:00.0
        nvidia 0000:19:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)
        nvidia 0000:19:00.0: AER:   device [10de:2330] error status/mask=00040000/00000000
        nvidia 0000:19:00.0: AER:    [18] MalfTLP                (First)
        nvidia 0000:19:00.0: AER:   TLP Header: 4a000001 01000004 00000000 00000000
        nvidia 0000:19:00.0: AER:   Error of this Agent is reported first
        nvidia 0000:19:00.0: AER: can't recover (no error_detected callback)
        pcieport 0000:17:01.0: AER: Root Port link has been reset (0)
        pcieport 0000:17:01.0: AER: device recovery failed
        pcieport 0000:17:01.0: AER: can't find device of ID1900
        """,
        [("aer", "0000:19:00.0", "fatal", 2), ("aer", "0000:17:01.0", "nonfatal", 1)],
    ),
    # 6.7 and later
    "aer 6.12": (
        """
        pcieport 0000:17:01.0: AER: Correctable error message received from 0000:19:00.0
        pcieport 0000:17:01.0: AER: found no error details for 0000:19:00.0
        pcieport 0000:17:01.0: AER: Multiple Uncorrectable (Non-Fatal) error message received from 0000:19:00.0
        mlx5_core 0000:19:00.1: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer, (Requester ID)
        pcieport 0000:17:01.0: AER: Correctable error message received from 0000:19:00.0 (no details found)
        cxl_mem 0000:5e:00.0: AER: CXL Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)
        """,
        [
            ("aer", "0000:19:00.0", "corrected", 2),
            ("aer", "0000:19:00.0", "nonfatal", 1),
            ("aer", "0000:19:00.1", "nonfatal", 1),
            ("aer", "0000:5e:00.0", "corrected", 1),
        ],
    ),
    "a later word": (
        "pcieport 0000:17:01.0: AER: Some new kind of error was seen",
        [("aer", "0000:17:01.0", None, 1)],
    ),
    # drivers/pci/pcie/pcie-dpc.c of 4.10, dpc.c of 5.x and 6.16
    "dpc 4.10": (
        """
        dpc 0000:00:02.0:pcie010: DPC error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+
        dpc 0000:00:02.0:pcie010: DPC containment event, status:0x1f01 source:0x0000
        dpc 0000:00:02.0:pcie010: DPC unmasked uncorrectable error detected, remove downstream devices
        """,
        [("aer", "0000:00:02.0", "fatal", 1)],
    ),
    "dpc 5.15": (
        """
        pcieport 0000:00:02.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+
        pcieport 0000:00:02.0: DPC: containment event, status:0x1f05 source:0x0300
        pcieport 0000:00:02.0: DPC: ERR_FATAL detected
        pcieport 0000:00:02.0: AER: broadcast error_detected message
        """,
        [("aer", "0000:03:00.0", "fatal", 1)],
    ),
    "dpc 6.16": (
        """
        pcieport 0000:00:02.0: DPC: containment event, status:0x000b, ERR_NONFATAL received from 0000:02:00.0
        pcieport 0000:00:03.0: DPC: containment event, status:0x0009: unmasked uncorrectable error detected
        pcieport 0000:00:03.0: DPC: containment event, status:0x0007: RP PIO error detected
        pcieport 0000:00:03.0: DPC: rp_pio_status: 0x00000000, rp_pio_mask: 0x00010000
        pcieport 0000:00:03.0: DPC: RP PIO severity=0x00010000, syserror=0x00000000, exception=0x00000000
        """,
        [("aer", "0000:02:00.0", "nonfatal", 1), ("aer", "0000:00:03.0", "fatal", 2)],
    ),
    "ghes pcie": (GHES_PCIE, [("aer", "0000:04:00.0", "fatal", 1)]),
    "firmware first": (FIRMWARE_FIRST, [("aer", "0000:c9:02.0", "nonfatal", 1)]),
    "firmware first, corrected": (
        CORRECTED_BY_FIRMWARE * 3,
        [("aer", "0000:2c:00.0", "corrected", 3)],
    ),
    "firmware first, cut off": (
        CORRECTED_BY_FIRMWARE.rpartition("nvme")[0],
        [("aer", "0000:2c:00.0", None, 1)],
    ),
    # drivers/firmware/efi/cper.c up to 3.12
    "ghes 3.10": (
        """
        {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0
        {1}[Hardware Error]: APEI generic hardware error status
        {1}[Hardware Error]: severity: 2, corrected
        {1}[Hardware Error]: section: 0, severity: 2, corrected
        {1}[Hardware Error]: flags: 0x01
        {1}[Hardware Error]: primary
        {1}[Hardware Error]: section_type: PCIe error
        {1}[Hardware Error]: port_type: 4, root port
        {1}[Hardware Error]: device_id: 0000:80:03.0
        """,
        [("aer", "0000:80:03.0", "corrected", 1)],
    ),
    "ghes of two sections, two at once": (
        """
        {3}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1
        {4}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0
        {3}[Hardware Error]: event severity: fatal
        {4}[Hardware Error]: It has been corrected by h/w and requires no further action
        {4}[Hardware Error]: event severity: corrected
        {3}[Hardware Error]:  Error 0, type: corrected
        {3}[Hardware Error]:   section_type: memory error
        {4}[Hardware Error]:  Error 0, type: corrected
        {4}[Hardware Error]:   section_type: memory error
        {3}[Hardware Error]:  Error 1, type: fatal
        {3}[Hardware Error]:   section_type: PCIe error
        {3}[Hardware Error]:   device_id: 0000:c2:02.0
        """,
        [("mce", None, "corrected", 2), ("aer", "0000:c2:02.0", "fatal", 1)],
    ),
    "ghes of a vendor's kind": (
        """
        {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 2
        {1}[Hardware Error]: event severity: fatal
        {1}[Hardware Error]:  Error 0, type: fatal
        {1}[Hardware Error]:   section type: unknown, 6d5244f2-2712-11ec-bea7-cb3fdb95c786
        {2}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 2
        {2}[Hardware Error]: event severity: info
        """,
        [("mce", None, "fatal", 1)],
    ),
    # drivers/acpi/apei/bert.c
    "of the boot before": (
        """
        BERT: Error records from previous boot:
        [Hardware Error]: event severity: fatal
        [Hardware Error]:  Error 0, type: fatal
        [Hardware Error]:   section_type: PCIe error
        [Hardware Error]:   device_id: 0000:17:00.0
        """,
        [("aer", "0000:17:00.0", "fatal", 1)],
    ),
    "intel 3.10": (
        """
        mce: [Hardware Error]: Machine check events logged
        EDAC sbridge MC0: HANDLING MCE MEMORY ERROR
        EDAC sbridge MC0: CPU 0: Machine Check Event: 0 Bank 7: 8c00004000010090
        EDAC sbridge MC0: TSC 0
        EDAC sbridge MC0: ADDR 3f4e80
        EDAC MC0: 12 CE memory read error on CPU_SrcID#0_Channel#0_DIMM#0 (channel:0 slot:0)
        EDAC MC0: 1 UE memory scrubbing error on CPU_SrcID#0_Channel#1_DIMM#0 (channel:1 slot:0)
        """,
        [
            ("mce_logged", None, None, 1),
            ("mce", None, "corrected", 12),
            ("mce", None, "nonfatal", 1),
        ],
    ),
    # between 4.20 and 5.10
    "intel, core": (
        """
        core: [Hardware Error]: CPU 18: Machine Check Exception: 5 Bank 7: be00000001010090
        core: [Hardware Error]: RIP !INEXACT! 10:<ffffffffa16506be> {native_safe_halt+0xe/0x10}
        core: [Hardware Error]: TSC a806dc0f34 ADDR 5c7a4df000 MISC 200000c020002086
        core: [Hardware Error]: PROCESSOR 0:50654 TIME 1598001986 SOCKET 0 APIC 1 microcode 1
        core: [Hardware Error]: Run the above through 'mcelog --ascii'
        core: [Hardware Error]: Machine check: Processor context corrupt
        """,
        [("mce", None, "fatal", 1), ("mce", None, "fatal", 1)],
    ),
    # drivers/edac/mce_amd.c
    "amd 3.10": (
        """
        [Hardware Error]: Error Status: Corrected error, no action required.
        [Hardware Error]: CPU:0 (10:9:1) MC4_STATUS[Over|CE|MiscV|-|AddrV|CECC]: 0xdc04410000080a13
        [Hardware Error]: MC4_ADDR: 0x00000000f6a1c2d0
        [Hardware Error]: MC4 Error (node 0): DRAM ECC error detected on the NB.
        EDAC amd64 MC0: CE ERROR_ADDRESS= 0xf6a1c2d0
        [Hardware Error]: cache level: L3/GEN, mem/io: MEM, mem-tx: RD, part-proc: RES (no timeout)
        """,
        [("mce", None, "corrected", 1), ("mce", None, "corrected", 1)],
    ),
    "amd 6.1": (
        """
        core: [Hardware Error]: Machine check events logged
        [Hardware Error]: Deferred error, no action required.
        [Hardware Error]: CPU:0 (17:18:1) MC20_STATUS[-|-|MiscV|AddrV|-|-|SyndV|UECC|Deferred|-|-]: 0x9c2030000001085b
        [Hardware Error]: Error Addr: 0x00000004010f4080
        [Hardware Error]: IPID: 0x0000009600050f00, Syndrome: 0x000000005d000003
        [Hardware Error]: Unified Memory Controller Ext. Error Code: 0, DRAM ECC error.
        """,
        [("mce_logged", None, None, 1), ("mce", None, "nonfatal", 1), ("mce", None, "nonfatal", 1)],
    ),
    "memory failure": (
        """
        Memory failure: 0x13d4a2: Sending SIGBUS to python:4242 due to hardware memory corruption
        Memory failure: 0x13d4a2: recovery action for dirty LRU page: Recovered
        """,
        [("mce", None, "nonfatal", 2)],
    ),
    "a later hardware error": (
        "mce: [Hardware Error]: something that nobody has written yet",
        [("mce", None, None, 1)],
    ),
    "edac, otherwise": (
        "EDAC PCI0: Non-Fatal Error PCIe ...",
        [("mce", None, None, 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_t4_hardware_errors_in_the_words_of_each_kernel_are_read(name: str) -> None:
    text, said = LOGS[name]
    assert told(log_of(text)) == said


HEALTHY = """
    mce: CPU supports 22 MCE banks
    mce: CPU0: Thermal monitoring enabled (TM1)
    HEST: Enabling Firmware First mode for corrected errors.
    GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.
    acpi PNP0A08:00: _OSC: platform does not support [SHPCHotplug AER]
    acpi PNP0A08:00: PCIe AER handled by firmware
    pcieport 0000:00:01.2: AER: enabled with IRQ 27
    pcieport 0000:00:01.2: DPC: enabled with IRQ 27
    pcieport 0000:00:02.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+
    EDAC MC: Ver: 3.0.0
    EDAC sbridge: Seeking for: PCI ID 8086:2fa0
    EDAC sbridge: ECC is disabled. Aborting
    EDAC amd64: Error: F0 not found, device 0x1460 (broken BIOS?)
    EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:2e:0a.0 (INTERRUPT)
    EDAC MC: Removed device 2 for skx_edac Skylake Socket#1 IMC#0: DEV 0000:ae:0a.0
    ERST: Error Record Serialization Table (ERST) support is initialized.
    """


def test_t4_a_healthy_log_has_no_hardware_event() -> None:
    assert told(log_of(HEALTHY)) == []


@pytest.mark.parametrize("node", ["laptop-gtx850m-nodriver", "x570-rtx3090-xid56",
                                  "x99-titanx-driver352"])  # fmt: skip
def test_t4_the_logs_of_real_nodes_have_no_hardware_error(captures: Path, node: str) -> None:
    text = (captures / "node-bundle" / node / "log/dmesg-filtered.txt").read_bytes()
    log = kernel_log.Log("dmesg", Events())
    for row in text.split(b"\n"):
        log.take_row(row)
    found = kernel_log.section_of(log)
    assert found["lines_read"] > 100
    assert {each["kind"] for each in found["events"]} <= {"xid", "driver_load"}


MEMORY = """
    {{3}}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1
    {{3}}[Hardware Error]: event severity: corrected
    {{3}}[Hardware Error]:  Error 0, type: corrected
    {{3}}[Hardware Error]:   section_type: memory error
    {{3}}[Hardware Error]:   DIMM location: {}
    """


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: bd80000000100134", "CPU 3 bank 7"),
        (
            "[Hardware Error]: CPU:2 (19:1:1) MC17_STATUS[-|UE|-|-|-|-|-|-|-]: 0xbc00000000000000",
            "CPU 2 bank 17",
        ),
        (
            "EDAC MC1: 1 CE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1)",
            "MC1 CPU_SrcID#0_MC#1_Chan#0_DIMM#0",
        ),
        ("EDAC MC0: 1 UE on DIMM_A1 (channel:0)", "MC0 DIMM_A1"),
        ("EDAC amd64 MC0: CE ERROR_ADDRESS= 0xf6a1c2d0", "MC0"),
        (MEMORY.format("CPU1 DIMM_A1"), "CPU1 DIMM_A1"),
        (MEMORY.format("not present. DMI handle: 0x0000"), None),
        ("[Hardware Error]: Corrected error, no action required.", None),
        (
            "Memory failure: 0x13d4a2: Sending SIGBUS to python:4242 due to hardware memory corruption",
            None,
        ),
    ],
)
def test_e06_an_error_of_hardware_names_its_part(text: str, detail: str | None) -> None:
    events = Events()
    reader = LogReader(events.keep)
    for line in log_of(text):
        reader.add(1.0, line)
    reader.end()
    (event,) = events.records()
    assert (event["kind"], event.get("detail")) == ("mce", detail)
