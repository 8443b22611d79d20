"""The driver's libraries, and those that a baseline names, as the loader would find them.

It loads nothing. /etc/ld.so.cache (glibc, elf/cache.c), then the loader's folders (ld.so(8)) give
the file of a name. Its beginning shows whether it is complete: a 64-bit ELF object with all its
segments. LD_LIBRARY_PATH is each process's own.
"""

import os
import re
import stat
import struct

from nodevet.remote.probe.files import (
    Reading,
    SectionError,
    attempt,
    path_under,
    read_bytes,
    reason,
    resolve,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")
CACHE = "/etc/ld.so.cache"
LIMIT = 8 << 20  # bytes of the cache; 200 KB is usual
ENTRIES = 1 << 16
MAGIC = b"glibc-ld.so.cache1.1"
HEADER = struct.Struct("=20sII20s")
ENTRY = struct.Struct("=iIIIQ")
OF_32_BITS = (0x0000, 0x0800, 0x0900, 0x0B00)  # i386 and others; x32; 32-bit ARM
FOLDERS = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/run/opengl-driver/lib",
)
IN_CONTAINER = (  # where a container keeps the driver: the GPU Operator's, that of GKE's nodes
    "/run/nvidia/driver/usr/bin",
    "/run/nvidia/driver/bin",
    "/home/kubernetes/bin/nvidia/bin",
)
NAME = re.compile(r"lib[A-Za-z0-9+._-]{1,100}\.so(\.[0-9]+)*\Z")
VERSION = re.compile(r"\.so\.([0-9]{3,4}(?:\.[0-9]{1,4}){1,2})\Z")
HEAD = 4096  # bytes of a library, which hold its program headers
ELF = struct.Struct("<16sHHIQQQIHHHHHH")
SEGMENT = struct.Struct("<IIQQQQQQ")


def parse_cache(data: bytes, library_names: "Iterable[str]") -> "dict[str, str]":
    """{name: path} of these libraries, the first of each. Raises ValueError."""
    start = data.find(MAGIC, 0, len(data))
    if start < 0:
        raise ValueError("not a cache of glibc's loader")
    _, count, _, _ = unpack(HEADER, data, start)
    if count > ENTRIES:
        raise ValueError("more than {} entries".format(ENTRIES))
    names = {name.encode(): name for name in library_names}
    paths: "dict[str, str]" = {}
    for index in range(count):
        flags, key, value, _, _ = unpack(ENTRY, data, start + HEADER.size + index * ENTRY.size)
        if flags & 0xFF00 in OF_32_BITS:
            continue
        name = names.get(text_at(data, start + key))
        if name is not None:
            path = text_at(data, start + value).decode("utf-8", "backslashreplace")
            if not path.startswith("/") or len(path) > 4000:
                raise ValueError("no absolute path for " + name)
            paths.setdefault(name, path)
    return paths


def unpack(form: "struct.Struct", data: bytes, offset: int) -> "tuple[Any, ...]":
    """Raises ValueError if the data is too short."""
    try:
        return form.unpack_from(data, offset)
    except struct.error:
        raise ValueError("truncated")


def text_at(data: bytes, offset: int) -> bytes:
    end = data.find(b"\0", offset, offset + 4096)
    if not 0 <= offset < len(data) or end < 0:
        raise ValueError("truncated")
    return data[offset:end]


def cached_paths(root: str, library_names: "Iterable[str]") -> "dict[str, str]":
    """{name: path} in the loader's cache; empty without it. Raises OSError, ValueError."""
    try:
        data = read_bytes(root, CACHE, LIMIT + 1)
    except FileNotFoundError:
        return {}
    if len(data) > LIMIT:
        raise ValueError("more than {} MiB".format(LIMIT >> 20))
    return parse_cache(data, library_names)


def parse_elf(data: bytes, size_b: int) -> str:
    """Why a file with this beginning and size cannot be loaded; "" if it can.

    >>> parse_elf(b"", 0), parse_elf(b"not found", 9)
    ('empty', 'not an ELF file')
    """
    if not size_b:
        return "empty"
    if data[:4] != b"\x7fELF":
        return "not an ELF file"
    if data[4:6] != b"\2\1":
        return "not an ELF file of 64 bits, little-endian"
    try:
        head = unpack(ELF, data, 0)
        kind, offset, size, count = head[1], head[5], head[9], head[10]
        if kind != 3:
            return "not a shared object"
        if size != SEGMENT.size or not 0 < count <= 64:
            return "no valid program headers"
        segments = [unpack(SEGMENT, data, offset + index * size) for index in range(count)]
    except ValueError:
        return "truncated: {} bytes".format(size_b)
    needed_b = max(
        [0] + [segment[2] + segment[5] for segment in segments if segment[0] == 1]
    )  # PT_LOAD
    return "truncated: {} of {} bytes".format(size_b, needed_b) if size_b < needed_b else ""


def library(root: str, name: str, path: "str | None", is_cached: bool) -> "Reading":
    """The record of a library; `path`: None if not found."""
    record = Reading(name=name, path=path or "", cached=is_cached)
    fields = ("file", "version", "broken")
    if path is None:
        record.fail_all(fields, "not found")
        return record
    try:
        record["file"] = resolve(root, path)[:4000]
        match = VERSION.search(record["file"])
        record["version"] = match.group(1) if match else ""
        status = os.stat(path_under(root, path))
        if stat.S_ISREG(status.st_mode):
            record["broken"] = parse_elf(read_bytes(root, path, HEAD), status.st_size)
        else:
            record["broken"] = "not a regular file"
    except FileNotFoundError:
        record["broken"] = "does not exist"
    except (OSError, ValueError) as error:
        for field in fields:
            if field not in record:
                record.fail(field, reason(error))
    return record


def path_in_folders(root: str, name: str) -> "str | None":
    """The path of a library in the loader's folders, or None."""
    for folder in FOLDERS:
        if os.path.lexists(path_under(root, folder) + "/" + name):
            return folder + "/" + name
    return None


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    requested = sorted(set(request.get("asks", {}).get("libraries", ())))
    library_names = list(DRIVER) + [
        name for name in requested if NAME.match(name) and name not in DRIVER
    ]
    paths, why = attempt(cached_paths, root, library_names)
    if paths is None:
        raise SectionError("{}: {}".format(CACHE, why))
    libraries = []
    for name in library_names:
        path = paths.get(name)
        libraries.append(library(root, name, path or path_in_folders(root, name), path is not None))
    for name in requested:
        if not NAME.match(name):
            record = Reading(name=name)
            fields = ("path", "cached", "file", "version", "broken")
            record.fail_all(fields, "not a valid library name, as libnccl.so.2 is")
            libraries.append(record)
    container = any(os.path.isdir(path_under(root, folder)) for folder in IN_CONTAINER)
    return Reading(libraries=libraries, driver_in_container=container)
