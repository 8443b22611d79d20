"""Reads a pickle of plain values without running anything: dicts, lists, texts, numbers.

The pickle module runs what a pickle names. This reads only the opcodes that build plain values,
which are those of torch's own pickler, and refuses every other: see pickletools. A tuple becomes a
list.
"""

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST = 16 << 20  # bytes: 2,000 entries with their stacks have some 10 MB
OPCODES = 1000000  # in one pickle: 2,000 entries with twenty frames each have half of that
NUMBERS = {  # opcode: form of its number
    b"K": "<B",  # BININT1
    b"M": "<H",  # BININT2
    b"J": "<i",  # BININT
    b"G": ">d",  # BINFLOAT
}
LENGTHS = {b"X": "<I", b"\x8c": "<B"}  # of a text: BINUNICODE, SHORT_BINUNICODE
PUTS = {b"q": "<B", b"r": "<I"}  # BINPUT, LONG_BINPUT
GETS = {b"h": "<B", b"j": "<I"}  # BINGET, LONG_BINGET
CONSTANTS = {b"N": None, b"\x88": True, b"\x89": False}
EMPTY = {b"}": dict, b"]": list, b")": list}
TUPLES = {b"\x85": 1, b"\x86": 2, b"\x87": 3}
MARK, STOP = b"(", b"."


class Plain(object):
    """A pickle that is being read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: "list[Any]" = []
        self.marks: "list[int]" = []  # lengths of the stack
        self.memo: "dict[int, Any]" = {}

    def take(self, length: int) -> bytes:
        piece = self.data[self.at : self.at + length]
        if len(piece) < length:
            raise ValueError("a truncated pickle")
        self.at += length
        return piece

    def number(self, form: str) -> "Any":
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def above_mark(self) -> "list[Any]":
        """Take the values above the last mark off the stack. Raises LookupError."""
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def value(self) -> "Any":
        """The value of the pickle. Raises ValueError, LookupError, TypeError."""
        if len(self.data) > LARGEST:
            raise ValueError("a pickle of more than {} MiB".format(LARGEST >> 20))
        for _ in range(OPCODES):
            code = self.take(1)
            if code == STOP:
                return self.stack.pop()
            self.step(code)
        raise ValueError("a pickle of more than {} opcodes".format(OPCODES))

    def step(self, code: bytes) -> None:
        """Do one opcode. Raises ValueError, LookupError, TypeError."""
        if code in NUMBERS:
            self.stack.append(self.number(NUMBERS[code]))
        elif code in LENGTHS:
            text = self.take(self.number(LENGTHS[code]))
            self.stack.append(text.decode("utf-8", "backslashreplace"))
        elif code in PUTS:
            self.memo[self.number(PUTS[code])] = self.stack[-1]
        elif code in GETS:
            self.stack.append(self.memo[self.number(GETS[code])])
        elif code in CONSTANTS:
            self.stack.append(CONSTANTS[code])
        elif code in EMPTY:
            self.stack.append(EMPTY[code]())
        elif code == MARK:
            self.marks.append(len(self.stack))
        elif code == b"\x94":  # MEMOIZE
            self.memo[len(self.memo)] = self.stack[-1]
        elif code == b"\x8a":  # LONG1
            self.stack.append(int.from_bytes(self.take(self.number("<B")), "little", signed=True))
        elif code in (b"\x80", b"\x95"):  # PROTO, FRAME
            self.take(1 if code == b"\x80" else 8)
        else:
            self.gather(code)

    def gather(self, code: bytes) -> None:
        """Put values into a list or dict. Raises ValueError, LookupError, TypeError."""
        if code in TUPLES:
            values = self.stack[-TUPLES[code] :]
            del self.stack[-TUPLES[code] :]
            self.stack.append(values)
        elif code in (b"e", b"t", b"u"):  # APPENDS, TUPLE, SETITEMS
            values = self.above_mark()
            if code == b"t":
                self.stack.append(values)
            elif code == b"e":
                self.checked_top(list).extend(values)
            else:
                target = self.checked_top(dict)
                for key, value in zip(values[::2], values[1::2]):
                    target[key] = value  # not by update: keys with one hash take long
        elif code == b"a":  # APPEND
            value = self.stack.pop()
            self.checked_top(list).append(value)
        elif code == b"s":  # SETITEM
            value, key = self.stack.pop(), self.stack.pop()
            self.checked_top(dict)[key] = value
        else:
            raise ValueError("opcode {} of a pickle builds more than plain values".format(code[0]))

    def checked_top(self, kind: type) -> "Any":
        """The list or dict on top. Raises TypeError."""
        if not isinstance(self.stack[-1], kind):
            raise TypeError("not a {}".format(kind.__name__))
        return self.stack[-1]


def plain_value(data: bytes) -> "Any":
    """The value of a pickle of plain values. Raises ValueError."""
    try:
        return Plain(data).value()
    except (LookupError, TypeError, struct.error) as error:
        raise ValueError("not a pickle of plain values: {}".format(error))
