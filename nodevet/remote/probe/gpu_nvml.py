"""NVML through pynvml, with NVML's own error names (NVML_ERROR_NOT_SUPPORTED).

Older drivers lack a function and newer ones deprecate it, so a value may have several calls, newest
first. Each call is noted before it is made: a lost GPU can block it for ever, and the note names
the call.
"""

import ctypes
import os

from nodevet.remote.probe.files import Absent, SectionError, path_under, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Sequence, TypeVar

    from nodevet.remote.probe.files import Reading

    T = TypeVar("T")

LIBRARY = "libnvidia-ml.so.1"
TOPS = ("", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia")
"""Where a machine has the driver: installed, in the GPU Operator's container, on GKE's nodes."""
FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/lib64")
INIT_FAILURES = {
    "NVML_ERROR_DRIVER_NOT_LOADED": "the NVIDIA kernel driver is not loaded",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": (
        "libnvidia-ml and the loaded kernel driver are of different versions"
    ),
    "NVML_ERROR_NO_PERMISSION": "this user may not open the NVIDIA device nodes",
}
UNKNOWN_CALL = ("NVML_ERROR_FUNCTION_NOT_FOUND", "NVML_ERROR_ARGUMENT_VERSION_MISMATCH")
TRY_OLDER = UNKNOWN_CALL + ("NVML_ERROR_DEPRECATED", "NVML_ERROR_NOT_SUPPORTED")
"""Errors after which an older call may still work."""
MEMBERS = {  # of nvmlValue_t, by NVML_VALUE_TYPE_*
    "DOUBLE": "dVal",
    "UNSIGNED_INT": "uiVal",
    "UNSIGNED_LONG": "ulVal",
    "UNSIGNED_LONG_LONG": "ullVal",
    "SIGNED_LONG_LONG": "sllVal",
    "SIGNED_INT": "siVal",
    "UNSIGNED_SHORT": "usVal",
}
UNAVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # NVML_VALUE_NOT_AVAILABLE, 32 and 64 bit


class CallError(Exception):
    """A call failed; the message is NVML's error name or a sentence."""


def load(root: str = "/") -> "Any":
    """The pynvml module. Compiling it is slow, so load the library first.

    In a container that has this machine mounted at `root`, the library may be the machine's or its
    driver container's; pynvml then finds it loaded, by its DT_SONAME.

    Raises Absent if the library is not installed, SectionError if it does not load.
    """
    try:
        ctypes.CDLL(library_under(root))
    except OSError as error:
        if "No such file" in str(error) and str(error).startswith(LIBRARY):
            raise Absent("NVML_ERROR_LIBRARY_NOT_FOUND: {} is not installed".format(LIBRARY))
        raise SectionError("NVML_ERROR_LIBRARY_NOT_FOUND: it cannot be loaded: {}".format(error))
    import pynvml

    return pynvml


def library_under(root: str) -> str:
    """The path of the library below `root`, or its name for the loader."""
    paths = [] if root == "/" else [top + folder for top in TOPS for folder in FOLDERS]
    for path in paths:
        file = path_under(root, path + "/" + LIBRARY)
        if os.path.exists(file):
            return file
    return LIBRARY


def names(pynvml: object, prefix: str) -> "dict[int, str]":
    """{value: name without the prefix} of pynvml's constants; of equal values the first.

    >>> class module:
    ...     NVML_COMPUTEMODE_DEFAULT = 0
    >>> names(module, "NVML_COMPUTEMODE_")
    {0: 'DEFAULT'}
    """
    names_by_value: "dict[int, str]" = {}
    for name, value in vars(pynvml).items():
        if name.startswith(prefix) and isinstance(value, int) and not name.endswith("_COUNT"):
            names_by_value.setdefault(value, name[len(prefix) :])
    return names_by_value


class Nvml:
    """The initialised library; `close` it. Raises SectionError."""

    def __init__(self, pynvml: "Any", note: "Callable[[str], None]") -> None:
        self.pynvml = pynvml
        self.note = note
        self.tables = {"NVML_ERROR_": names(pynvml, "NVML_ERROR_")}
        self.tables["NVML_ERROR_"][0] = "SUCCESS"
        try:
            self.call("", "nvmlInit")
        except CallError as failure:
            name = str(failure)
            raise SectionError("{}: {}".format(name, INIT_FAILURES.get(name, "nvmlInit failed")))

    def close(self) -> None:
        """nvmlShutdown; a failure does not matter."""
        try:
            self.call("", "nvmlShutdown")
        except CallError:
            pass

    def name(self, prefix: str, value: int) -> str:
        """The name of the constant with this prefix and value. Raises CallError."""
        if prefix not in self.tables:
            self.tables[prefix] = names(self.pynvml, prefix)
        if value not in self.tables[prefix]:
            raise CallError("NVML returned {}, an unknown value".format(value))
        return self.tables[prefix][value]

    def error_name(self, code: int) -> str:
        """NVML_ERROR_GPU_IS_LOST for 15."""
        return "NVML_ERROR_{}".format(self.tables["NVML_ERROR_"].get(code, code))

    def constant(self, name: str) -> "Any":
        """A constant or function of pynvml. Raises CallError if this pynvml lacks it."""
        try:
            return getattr(self.pynvml, name)
        except AttributeError:
            raise CallError("NVML_ERROR_FUNCTION_NOT_FOUND")

    def call(self, where: str, function: str, *arguments: "Any") -> "Any":
        """Note and make one call of pynvml. Raises CallError."""
        self.note((where + " " + function).strip())
        try:
            return self.constant(function)(*arguments)
        except self.pynvml.NVMLError as error:
            raise CallError(self.error_name(error.value))


class System:
    """Calls about no GPU, with Device's interface."""

    def __init__(self, nvml: "Nvml") -> None:
        self.nvml = nvml

    def ask(self, function: str) -> "Any":
        return self.nvml.call("", function)


class Device:
    """One GPU's calls. Each is made once; answers and failures are cached."""

    def __init__(self, nvml: "Nvml", index: int) -> None:
        self.nvml = nvml
        self.label = "GPU {}".format(index)
        self.answers: "dict[tuple[Any, ...], tuple[Any, str | None]]" = {}
        self.handle = self.handle_of(index)

    def handle_of(self, index: int) -> "Any":
        return self.nvml.call(self.label, "nvmlDeviceGetHandleByIndex", index)

    def ask(self, function: str, *arguments: "Any") -> "Any":
        """The answer of one call.

        A string argument names a constant of pynvml. If it names a structure, the call fills a new
        one, which is the answer. `field` is nvmlDeviceGetFieldValues of one field and scope.
        """
        key = (function,) + arguments
        if key not in self.answers:
            self.answers[key] = outcome(self._ask, function, arguments)
        answer, why = self.answers[key]
        if why is not None:
            raise CallError(why)
        return answer

    def ask_fields(self, rows: "Iterable[tuple[Any, ...]]") -> None:
        """Cache the fields that rows of `fill` ask first, by one call: each takes as long as a call
        of its own. If it fails, each field is asked alone."""
        calls = [row[3] for row in rows if row[3][0] == "field" and row[3] not in self.answers]
        scopes = {call: outcome(self._constants, call[1:])[0] for call in calls}
        calls = [call for call in calls if scopes[call]]
        if calls:
            replies, _ = outcome(self._fields, [scopes[call] for call in calls])
            for call, reply in zip(calls, replies or ()):
                self.answers[call] = outcome(self._value, reply)

    def _ask(self, function: str, arguments: "tuple[Any, ...]") -> "Any":
        values = self._constants(arguments)
        if function == "field":
            return self._value(self._fields([values])[0])
        if values and isinstance(values[-1], type):
            structure = values.pop()()
            self.nvml.call(self.label, function, self.handle, *(values + [ctypes.byref(structure)]))
            return structure
        return self.nvml.call(self.label, function, self.handle, *values)

    def _constants(self, arguments: "tuple[Any, ...]") -> "list[Any]":
        return [self.nvml.constant(item) if isinstance(item, str) else item for item in arguments]

    def _fields(self, fields: "list[list[int]]") -> "Any":
        """The replies for [field] or [field, scope]."""
        scopes = [(field[0], field[1] if field[1:] else 0) for field in fields]
        return self.nvml.call(self.label, "nvmlDeviceGetFieldValues", self.handle, scopes)

    def _value(self, reply: "Any") -> "Any":
        if reply.nvmlReturn != 0:
            raise CallError(self.nvml.error_name(reply.nvmlReturn))
        kind = self.nvml.name("NVML_VALUE_TYPE_", reply.valueType)
        return getattr(reply.value, MEMBERS[kind])


class MigPart(Device):
    """One MIG device's calls. Raises CallError without a handle."""

    def __init__(self, device: "Device", index: int) -> None:
        self.device = device
        super().__init__(device.nvml, index)
        self.label = "{} MIG {}".format(device.label, index)

    def handle_of(self, index: int) -> "Any":
        return self.device.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)


def outcome(function: "Callable[..., T]", *arguments: "Any") -> "tuple[T | None, str | None]":
    """(answer, None), or (None, why)."""
    try:
        return function(*arguments), None
    except CallError as failure:
        return None, str(failure)


def first(source: "System | Device", calls: "Sequence[tuple[Any, ...]]") -> "Any":
    """The answer of the first call that the driver knows. Raises CallError."""
    failures = []
    for call in calls:
        try:
            return source.ask(*call)
        except CallError as failure:
            failures.append(failure)
            if str(failure) not in TRY_OLDER:
                break
    raise next((failure for failure in failures if str(failure) not in UNKNOWN_CALL), failures[0])


def fill(record: "Reading", source: "System | Device", rows: "Iterable[tuple[Any, ...]]") -> None:
    """Read these values into the record; each fails alone.

    A row: field; a function of the answer, or the prefix of its constants; the part of the answer
    (an index, an attribute, None for all); the calls, newest first.
    """
    for row in rows:
        field, kind, part = row[:3]
        try:
            answer = first(source, row[3:])
            if isinstance(part, int):
                answer = answer[part]
            elif part is not None:
                answer = getattr(answer, part)
            if isinstance(kind, str):
                record[field] = source.nvml.name(kind, answer)
            else:
                record[field] = kind(answer)
        except CallError as failure:
            record.fail(field, str(failure))
        except (ValueError, LookupError) as error:
            record.fail(field, reason(error))


def number(value: "int | None") -> int:
    """An int. Raises CallError if it is not available."""
    if value is None or value in UNAVAILABLE:
        raise CallError("NVML_VALUE_NOT_AVAILABLE")
    return int(value)


def flag(value: "int | None") -> bool:
    return bool(number(value))


def text(value: "bytes | str") -> str:
    """A string. Raises CallError if it is empty."""
    string = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    if not string:
        raise CallError("NVML_VALUE_NOT_AVAILABLE")
    return string
