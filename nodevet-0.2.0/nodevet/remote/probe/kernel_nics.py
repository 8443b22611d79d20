"""Kernel log lines about a failed network card, and about a card or GPU that its driver rejected.

Sources, below drivers/ of the kernel tree: net/ethernet/mellanox/mlx5/core/{health,main}.c,
mellanox/mlx4/catas.c, broadcom/bnxt/bnxt.c, intel/ice/ice_main.c, intel/{fm10k,igb,igc,ixgbe},
amazon/ena/ena_netdev.c, chelsio/cxgb4, infiniband/hw/irdma; base/dd.c. A line names the driver and
the PCI address, which is more than a process's name can hold.
"""

from nodevet.remote.probe.kernel_hardware import LineFacts, format_address
from nodevet.remote.probe.patterns import Pattern

# driver -> its lines
WORDS = {
    "mlx5_core": r"(?:\w{1,64}:[0-9]{1,6}:\(pid [0-9]{1,10}\): )?"
    r"(?:Fatal error [0-9]{1,10} detected|device's health compromised"
    r"|health recovery (?:flow aborted|failed\Z))",
    "mlx4_core": r"Internal error (?:mark was )?detected",
    "bnxt_en": r"Firmware (?:fatal reset event|not responding, status: 0x|reset aborted)",
    "ice": r"Rebuild failed, unload and reload driver|Requesting a reset",
    "i40e": r"Requesting a reset",
    "irdma": r"Requesting a reset",
    "ena": r"Reset attempt failed\. Can not reset the device",
    "cxgb4": r"encountered fatal error, adapter stopped",
    "fm10k": r"PCIe link lost, device now detached",
    "igb": r"PCIe link lost",
    "igc": r"PCIe link lost, device now detached",
    "ixgbe": r"Adapter removed",
}
DRIVERS = tuple("{} ".format(driver) for driver in WORDS)
DEVICE = r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])"
# a network or RDMA device's name
NAMED = r"(?: [^\s:/]{1,64}| \(unnamed net_device\))?(?: \(\w{1,20}\))?"
FAILED = {
    driver: Pattern("{} {}{}: (?:{})".format(driver, DEVICE, NAMED, words))
    for driver, words in WORDS.items()
}
# drivers of devices that a job needs; on the auxiliary bus the first word of mlx5_ib.rdma
PROBING = (
    *("atlantic", "be2net", "bnx2", "bnx2x", "bnxt_en", "bnxt_re", "cxgb4", "e1000e", "efa", "ena"),
    *("enic", "fm10k", "gve", "hfi1", "hns3", "i40e", "ice", "idpf", "igb", "igc", "ionic"),
    *("irdma", "ixgbe", "mana", "mlx4_core", "mlx5_core", "mlx5_ib", "nfp", "nvidia", "qede"),
    *("r8169", "sfc", "tg3"),
)
NAME = r"((\w{1,24})(?:\.\w{1,24})?)"
PROBE_OF = Pattern(
    NAME + r": probe of ([\w.:-]{1,64}) failed with error -[0-9]{1,4}\Z"
)  # up to 6.7
PROBE_WITH = Pattern(
    NAME + r" ([\w.:-]{1,64}): probe with driver \1 failed with error -[0-9]{1,4}\Z"
)
OF_MLX5 = Pattern(
    r"((mlx5_core)) ([\w.:-]{1,64}): (?:(?:probe|init)_one:[0-9]{1,6}:\(pid [0-9]{1,10}\): )?"
    r"mlx5_(?:init|load)_one failed with error code -?[0-9]{1,6}\Z"
)
ADDRESS = Pattern(DEVICE + r"\Z")


def nic_line(text: str) -> "LineFacts | None":
    """The LineFacts of a line about a failed network card, or a card or GPU that its driver
    rejected; None for other lines."""
    if text.startswith(DRIVERS):
        driver = text.partition(" ")[0]
        match = FAILED[driver].match(text)
        if match:
            address = format_address(match)
            return LineFacts("nic_failed", None, address, "fatal", "{} {}".format(driver, address))
    return probe_line(text) if "_one failed with" in text or "probe " in text else None


def probe_line(text: str) -> "LineFacts | None":
    for pattern in (PROBE_OF, PROBE_WITH, OF_MLX5):
        match = pattern.match(text)
        if match and match.group(2) in PROBING:
            driver, _, device = match.groups()
            address = ADDRESS.match(device)
            pci_address = format_address(address) if address else None
            return LineFacts(
                "probe_failed", None, pci_address, "fatal", "{} {}".format(driver, device)
            )
    return None
