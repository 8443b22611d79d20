"""Error counters, memory repairs, NVLinks and the fabric of one GPU."""

from nodevet.remote.probe.files import Reading
from nodevet.remote.probe.gpu_nvml import CallError, MigPart, fill, flag, number, text
from nodevet.remote.probe.gpu_values import bit_error_rate, bus_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container, Iterable, Iterator

    from nodevet.remote.probe.gpu_nvml import Device

TOTAL, BY_LOCATION = ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetMemoryErrorCounter")


LIFETIMES = (("volatile", "NVML_VOLATILE_ECC"), ("aggregate", "NVML_AGGREGATE_ECC"))
LOCATION = "NVML_MEMORY_LOCATION_"
CACHES = ("L1_CACHE", "L2_CACHE", "REGISTER_FILE", "TEXTURE_MEMORY", "TEXTURE_SHM", "CBU")
NO_SUCH_LOCATION = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_INVALID_ARGUMENT")


def ecc_kinds() -> "Iterator[tuple[str, tuple[str, str]]]":
    """(field with a place for the location, NVML's arguments) by lifetime and severity."""
    for lifetime, counter in LIFETIMES:
        for severity in ("CORRECTED", "UNCORRECTED"):
            arguments = ("NVML_MEMORY_ERROR_TYPE_" + severity, counter)
            yield "{}_{{}}{}".format(lifetime, severity.lower()), arguments


def ecc_rows() -> "Iterator[tuple[Any, ...]]":
    """Rows of the totals and of the counts by location."""
    for name, arguments in ecc_kinds():
        yield (name.format(""), number, None, (TOTAL,) + arguments)
        for location in ("SRAM", "DRAM"):
            call = (BY_LOCATION,) + arguments + (LOCATION + location,)
            yield (name.format(location.lower() + "_"), number, None, call)


def ecc(device: "Device") -> "Reading":
    """The counts of a GPU; before Turing NVML has caches instead of SRAM."""
    record = Reading()
    fill(record, device, ECC)
    for name, arguments in ecc_kinds():
        field, sram = name.format("cache_"), name.format("sram_")
        if record["errors"].get(sram) in NO_SUCH_LOCATION:
            try:
                record[field] = ecc_in_caches(device, arguments)
            except CallError as failure:
                record.fail(field, str(failure))
    return record


def ecc_in_caches(device: "Device", arguments: "tuple[str, str]") -> int:
    """The sum over all caches. Raises CallError if one was not read, or NVML counts none."""
    counts, failures = [], []
    for location in CACHES:
        try:
            counts.append(number(device.ask(BY_LOCATION, *(arguments + (LOCATION + location,)))))
        except CallError as failure:
            if str(failure) not in NO_SUCH_LOCATION:
                raise
            failures.append(failure)
    if not counts:
        raise failures[-1]
    return sum(counts)


ECC = tuple(ecc_rows()) + (
    (
        "sram_threshold_exceeded",
        flag,
        "bThresholdExceeded",
        ("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t"),
    ),
)

REMAPPED = ("nvmlDeviceGetRemappedRows",)
HISTOGRAM = ("nvmlDeviceGetRowRemapperHistogram",)
REMAPPING = (
    ("corrected", number, 0, REMAPPED),
    ("uncorrected", number, 1, REMAPPED),
    ("pending", flag, 2, REMAPPED),
    ("failure", flag, 3, REMAPPED),
    ("banks_max", number, "max", HISTOGRAM),
    ("banks_high", number, "high", HISTOGRAM),
    ("banks_partial", number, "partial", HISTOGRAM),
    ("banks_low", number, "low", HISTOGRAM),
    ("banks_none", number, "none", HISTOGRAM),
)

CAUSE = "NVML_PAGE_RETIREMENT_CAUSE_"
RETIRED_PAGES = (
    (
        "single_bit",
        len,
        None,
        ("nvmlDeviceGetRetiredPages", CAUSE + "MULTIPLE_SINGLE_BIT_ECC_ERRORS"),
    ),
    ("double_bit", len, None, ("nvmlDeviceGetRetiredPages", CAUSE + "DOUBLE_BIT_ECC_ERROR")),
    ("pending", flag, None, ("nvmlDeviceGetRetiredPagesPendingStatus",)),
)

REPAIR_STATUS = ("nvmlDeviceGetRepairStatus",)
REPAIR = (
    ("channel_pending", flag, 0, REPAIR_STATUS),
    ("tpc_pending", flag, 1, REPAIR_STATUS),
    ("unrepairable_memory", flag, None, ("nvmlDeviceGetUnrepairableMemoryFlag_v1",)),
)


def cluster_uuid(value: "Iterable[int]") -> str:
    """16 bytes as a UUID.

    >>> cluster_uuid(bytes(range(16)))
    '00010203-0405-0607-0809-0a0b0c0d0e0f'
    """
    digits = "".join("{:02x}".format(byte) for byte in value)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


FABRIC_V3 = ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t")
FABRIC_V2 = ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t")
FABRIC_V1 = ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t")
FABRIC_STATE = (("state", "NVML_GPU_FABRIC_STATE_", "state", FABRIC_V3, FABRIC_V2, FABRIC_V1),)
FABRIC = (
    ("status", "NVML_ERROR_", "status", FABRIC_V3, FABRIC_V2, FABRIC_V1),
    ("clique_id", number, "cliqueId", FABRIC_V3, FABRIC_V2, FABRIC_V1),
    ("cluster_uuid", cluster_uuid, "clusterUuid", FABRIC_V3, FABRIC_V2, FABRIC_V1),
    ("health_mask", number, "healthMask", FABRIC_V3, FABRIC_V2),
    ("health_summary", "NVML_GPU_FABRIC_HEALTH_SUMMARY_", "healthSummary", FABRIC_V3),
)


def fabric(device: "Device") -> "Reading":
    """The fabric's fields; all but the state need the state COMPLETED."""
    record = Reading()
    fill(record, device, FABRIC_STATE)
    if record["state"] in (None, "COMPLETED"):
        fill(record, device, FABRIC)
    else:
        for row in FABRIC:
            record.fail(row[0], "the fabric state is " + record["state"])
    return record


CORRUPTED = "NVML_ERROR_CORRUPTED_INFOROM"


def inforom(gpu: "Reading", device: "Device") -> None:
    """Set `inforom_valid`: whether the checksums in the GPU's flash are right."""
    try:
        device.ask("nvmlDeviceValidateInforom")
        gpu["inforom_valid"] = True
    except CallError as failure:
        if str(failure) == CORRUPTED:
            gpu["inforom_valid"] = False
        else:
            gpu.fail("inforom_valid", str(failure))


MIG_DEVICES = 16  # of one GPU; there are 7 at most
MIG_IDENTITY = (("uuid", text, None, ("nvmlDeviceGetUUID",)),)


def link_errors(
    field: str, kind: str, link: int, *newer_calls: "tuple[Any, ...]"
) -> "tuple[Any, ...]":
    older_call = ("nvmlDeviceGetNvLinkErrorCounter", link, "NVML_NVLINK_ERROR_DL_" + kind)
    return (field, number, None) + newer_calls + (older_call,)


def nvlink_rows(link: int) -> "tuple[tuple[Any, ...], ...]":
    """The fields 84 to 137 have one id for each link and end at link 11."""
    return (
        ("active", flag, None, ("nvmlDeviceGetNvLinkState", link)),
        (
            "version",
            number,
            None,
            ("nvmlDeviceGetNvLinkVersion", link),
            ("field", "NVML_FI_DEV_NVLINK_GET_VERSION", link),
        ),
        (
            "speed_mbps",
            number,
            None,
            ("field", "NVML_FI_DEV_NVLINK_GET_SPEED", link),
            ("field", "NVML_FI_DEV_NVLINK_SPEED_MBPS_L{}".format(link)),
        ),
        ("remote_bus_id", bus_id, "busId", ("nvmlDeviceGetNvLinkRemotePciInfo", link)),
        link_errors(
            "replay_errors", "REPLAY", link, ("field", "NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY", link)
        ),
        link_errors(
            "recovery_errors",
            "RECOVERY",
            link,
            ("field", "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY", link),
        ),
        link_errors("crc_flit_errors", "CRC_FLIT", link),
        link_errors("crc_data_errors", "CRC_DATA", link),
    )


LINK_QUESTIONS = {  # read only if a baseline asks for it
    "nvlink_ber": (
        ("effective_ber", "NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER"),
        ("symbol_ber", "NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER"),
    ),
    "nvlink_capabilities": (
        ("p2p", "NVML_NVLINK_CAP_P2P_SUPPORTED"),
        ("sysmem_access", "NVML_NVLINK_CAP_SYSMEM_ACCESS"),
        ("p2p_atomics", "NVML_NVLINK_CAP_P2P_ATOMICS"),
        ("sysmem_atomics", "NVML_NVLINK_CAP_SYSMEM_ATOMICS"),
    ),
}


def asked_rows(link: int, questions: "Container[str]") -> "Iterator[tuple[Any, ...]]":
    """Rows of `fill` for the questions about a link."""
    if "nvlink_ber" in questions:
        for name, field in LINK_QUESTIONS["nvlink_ber"]:
            yield (name, bit_error_rate, None, ("field", field, link))
    if "nvlink_capabilities" in questions:
        for name, capability in LINK_QUESTIONS["nvlink_capabilities"]:
            yield (name, flag, None, ("nvmlDeviceGetNvLinkCapability", link, capability))


NO_SUCH_LINK = ("NVML_ERROR_INVALID_ARGUMENT", "NVML_ERROR_NOT_SUPPORTED")


def link_count(device: "Device") -> int:
    """The number of NVLinks; if the driver does not say, of those that answer."""
    try:
        return number(device.ask("field", "NVML_FI_DEV_NVLINK_LINK_COUNT"))
    except CallError:
        device.ask("nvmlDeviceGetNvLinkState", 0)
    max_links: int = device.nvml.constant("NVML_NVLINK_MAX_LINKS")
    for link in range(max_links):
        try:
            device.ask("nvmlDeviceGetNvLinkState", link)
        except CallError as failure:
            if str(failure) in NO_SUCH_LINK:
                return link
    return max_links


def mig_devices(gpu: "Reading", device: "Device") -> None:
    """Set `mig_devices`: their handles tell a part of what the GPU's does not in MIG mode."""
    gpu["mig_devices"] = []
    if not gpu["mig_current"]:
        return
    try:
        count = number(device.ask("nvmlDeviceGetMaxMigDeviceCount"))
    except CallError as failure:
        gpu.fail("mig_devices", str(failure))
        return
    for index in range(min(count, MIG_DEVICES)):
        record = Reading(index=index)
        try:
            part = MigPart(device, index)
        except CallError as failure:
            if str(failure) == "NVML_ERROR_NOT_FOUND":  # no device has this index
                continue
            record["errors"]["handle"] = str(failure)
            gpu["mig_devices"].append(record)
            continue
        fill(record, part, MIG_IDENTITY)
        record["ecc"] = ecc(part)
        record["remapping"] = Reading()
        fill(record["remapping"], part, REMAPPING)
        gpu["mig_devices"].append(record)


def nvlinks(gpu: "Reading", device: "Device", questions: "Container[str]" = ()) -> None:
    """Set `nvlinks`: a record for each link, active or not."""
    try:
        count = link_count(device)
    except CallError as failure:
        gpu.fail("nvlinks", str(failure))
        return
    gpu["nvlinks"] = []
    rows = [nvlink_rows(link) + tuple(asked_rows(link, questions)) for link in range(count)]
    device.ask_fields(row for rows_of_link in rows for row in rows_of_link)
    for link in range(count):
        record = Reading(link=link)
        fill(record, device, rows[link])
        gpu["nvlinks"].append(record)
