"""Builds what a pickle of plain values describes, without the pickle module: nothing in it is imported or called.

A pickle is a program for a machine with a stack and a memory of objects (`pickletools` lists its instructions). This module
runs the instructions for dictionaries, lists, tuples, texts and numbers, and refuses all others. A name such as `collections
OrderedDict` is a text here; what may be built under it is for the caller to say. Keys are texts and numbers alone: the hash of
a tuple that contains another one twice, and so on, takes forever.
"""

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Dictionaries, lists and tuples of a pickle; an empty dictionary of one byte takes 64 in memory.
MAX_CONTAINERS = 1_000_000
KEYS = (str, int, float, bool, type(None))
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
VALUES = {
    *("INT", "LONG", "BININT", "BININT1", "BININT2", "LONG1", "FLOAT", "BINFLOAT"),
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE"),
}
EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True)
class Name:
    """A name that a pickle refers to, `module name`. It is not imported."""

    text: str


def _no_reference(reference: Any) -> Any:
    raise ValueError("it refers to another file")


def build(
    data: bytes,
    *,
    makers: Mapping[str, Callable[..., Any]] | None = None,
    refer: Callable[[Any], Any] = _no_reference,
) -> Any:
    """The value that the pickle `data` describes.

    `makers` are the functions that may be called, by their names in the pickle, and `refer` turns a reference to what is stored
    outside of the pickle into a value. Raises ValueError, or whatever a maker or a wrong order of instructions raises.
    """
    machine = _Machine(makers or {}, refer)
    for opcode, argument, _ in pickletools.genops(data):
        machine.run(opcode.name, argument)
    (value,) = machine.stack
    return value


class _Machine:
    """The stack, its marks and the memory of objects."""

    def __init__(self, makers: Mapping[str, Callable[..., Any]], refer: Callable[[Any], Any]) -> None:
        self.stack: list[Any] = []
        self._marks: list[int] = []
        self._memory: dict[int, Any] = {}
        self._makers, self._refer = makers, refer
        self._containers = 0

    def run(self, name: str, argument: Any) -> None:
        """One instruction. Raises ValueError for one that is not allowed."""
        stack, memory = self.stack, self._memory
        if name in VALUES:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in EMPTY:
            self._push_container(EMPTY[name]())
        elif name in TUPLES:
            values = [stack.pop() for _ in range(TUPLES[name])]
            self._push_container(tuple(reversed(values)))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memory[argument] = stack[-1]
        elif name == "MEMOIZE":
            memory[len(memory)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memory[argument])
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name in ("TUPLE", "LIST"):
            values = self._since_mark()
            self._push_container(tuple(values) if name == "TUPLE" else values)
        elif name == "DICT":
            values = self._since_mark()
            self._push_container({})
            self._set(values)
        elif name in ("SETITEM", "SETITEMS"):
            self._set(self._since_mark() if name == "SETITEMS" else [stack.pop(-2), stack.pop()])
        elif name in ("APPEND", "APPENDS"):
            values = self._since_mark() if name == "APPENDS" else [stack.pop()]
            _checked(stack[-1], list).extend(values)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            self._name(argument if name == "GLOBAL" else " ".join([_checked(stack.pop(-2), str), _checked(stack.pop(), str)]))
        elif name == "REDUCE":
            arguments = _checked(stack.pop(), tuple)
            self._push_container(self._makers[_checked(stack.pop(), Name).text](*arguments))
        elif name == "BUILD":  # attributes of a dictionary that is more than one, such as its version
            stack.pop()
            _checked(stack[-1], dict)
        elif name == "BINPERSID":
            stack.append(self._refer(stack.pop()))
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"it contains {name} {argument or ''}, which this reader does not allow")

    def _name(self, text: str) -> None:
        if text not in self._makers:
            raise ValueError(f"it names {text}, which this reader does not allow")
        self.stack.append(Name(text))

    def _push_container(self, value: Any) -> None:
        self._containers += 1
        if self._containers > MAX_CONTAINERS:
            raise ValueError(f"it contains more than {MAX_CONTAINERS:,} dictionaries, lists and tuples")
        self.stack.append(value)

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def _set(self, items: list[Any]) -> None:
        """Add keys and values, in turn, to the dictionary on top of the stack."""
        target, keys = _checked(self.stack[-1], dict), items[::2]
        for key in keys:
            if type(key) not in KEYS:
                raise ValueError(f"it has a key of type {type(key).__name__}; only texts and numbers are allowed")
        target.update(zip(keys, items[1::2], strict=True))


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"it has a value of type {type(value).__name__} in the place of one of type {kind.__name__}")
    return value
