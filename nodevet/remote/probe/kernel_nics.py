"""What a network card's driver logs when the card has failed.

Sources, below drivers/ of the kernel tree: net/ethernet/mellanox/mlx5/core/health.c,
mellanox/mlx4/catas.c, broadcom/bnxt/bnxt.c, intel/ice/ice_main.c, intel/{fm10k,igb,igc,ixgbe},
amazon/ena/ena_netdev.c, chelsio/cxgb4, infiniband/hw/irdma. A line says the driver and the PCI
address, which together are more than a process's name has room for.
"""

from nodevet.remote.probe.kernel_hardware import Said, spelled
from nodevet.remote.probe.patterns import Pattern

# driver -> what it logs
WORDS = {
    "mlx5_core": r"(?:\w{1,64}:[0-9]{1,6}:\(pid [0-9]{1,10}\): )?"
    r"(?:Fatal error [0-9]{1,10} detected|device's health compromised"
    r"|health recovery flow aborted)",
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
# of a network or RDMA device, or what the kernel calls one without
NAMED = r"(?: [^\s:/]{1,64}| \(unnamed net_device\))?(?: \(\w{1,20}\))?"
FAILED = {
    driver: Pattern("{} {}{}: (?:{})".format(driver, DEVICE, NAMED, words))
    for driver, words in WORDS.items()
}


def nic_line(text):
    """The Said of a line about a network card that failed, or None."""
    if not text.startswith(DRIVERS):
        return None
    driver = text.partition(" ")[0]
    match = FAILED[driver].match(text)
    if match is None:
        return None
    address = spelled(match)
    return Said("nic_failed", None, address, "fatal", "{} {}".format(driver, address))
