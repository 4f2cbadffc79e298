"""Messages between operator and planner process; large values cross once, then by name.

Both ends keep the same values: messages take strict turns, and the operator's end says which to
forget. Both ends are one release in one pod, so no other version must read this.
"""

import copyreg
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from types import MappingProxyType
from typing import IO, Any, Final

from shardwright.controller.budget import QuestionFault
from shardwright.hardware.inventory import Inventory, Node
from shardwright.layouts.layout import EngineTraits
from shardwright.modelspec.model_spec import ModelSpec, interned
from shardwright.resolving.subject import Administration

LENGTH: Final = struct.Struct(">Q")
"""What goes before every message: how many bytes it has."""

SHARED: Final = frozenset({ModelSpec, EngineTraits, Inventory, Administration})
"""Types of the values that cross once: 35 KB of a model, 23 KB of an engine's traits, 100 KB of a
thousand nodes.
"""

ROOM_BYTES: Final = 4 << 20
"""Bytes kept on both ends, as sent; in memory several times as much. Basis: assumed, the models of
a hundred resources that are all different, or a dozen of the largest that are admitted, beside a
cluster of 5,000 nodes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a question, the reason for none, or our fault; and the CPU seconds it took."""

    answer: Any = None
    fault: QuestionFault | None = None
    error: str = ""
    raised: str = ""
    cpu_seconds: float


def read_message(source: IO[bytes]) -> bytes | None:
    """Return the next message, None if the other end has closed."""
    head = source.read(LENGTH.size)
    # Also where it has ended in the midst of a message: half of one is none.
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    body = source.read(length)
    return body if len(body) == length else None


def write_message(target: IO[bytes], body: bytes) -> None:
    """Send a message."""
    target.write(LENGTH.pack(len(body)))
    target.write(body)
    # Both ends wait in strict turn, so a question in a buffer would wait for its own answer.
    target.flush()


class SharedValues:
    """One end; only the one with ``decides`` forgets the least recently used beyond ``room_bytes``,
    and says so.
    """

    def __init__(self, *, decides: bool, room_bytes: int = ROOM_BYTES) -> None:
        self._decides = decides
        self._room_bytes = room_bytes
        self._values: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()
        self._names: dict[int, bytes] = {}
        self._size = 0

    def dumps(self, message: object) -> bytes:
        """Return a message for the other end's :meth:`loads`."""
        # Before this message is pickled: it must not forget values that it refers to.
        forgotten = tuple(self._superfluous())
        new: list[tuple[bytes, bytes]] = []
        body = self._pickled(message, new, root=None)
        return pickle.dumps((forgotten, new, body), pickle.HIGHEST_PROTOCOL)

    def loads(self, data: bytes) -> Any:
        """Return the other end's message; it is this program, so no user's data is unpickled."""
        forgotten, new, body = pickle.loads(data)  # noqa: S301 - written by the other end of our own pipe
        for name in forgotten:
            self._forget(name)
        for name, content in new:
            value = _Unpickler(content, self._value).load()
            self._keep(
                name,
                # Interned, so that equal models of many resources are one object, and are compared
                # by identity.
                interned(value) if isinstance(value, ModelSpec) else value,
                len(content),
            )
        return _Unpickler(body, self._value).load()

    def _pickled(self, value: object, new: list[tuple[bytes, bytes]], root: object) -> bytes:
        file = BytesIO()
        _Pickler(file, lambda part: None if part is root else self._name(part, new)).dump(value)
        return file.getvalue()

    def _name(self, value: object, new: list[tuple[bytes, bytes]]) -> bytes:
        """Return the name of a value; a new one joins ``new`` after those it refers to."""
        known = self._names.get(id(value))
        if known is not None:
            self._values.move_to_end(known)
            return known
        # Its parts first: a model within a subject crosses once for all subjects.
        content = self._pickled(value, new, root=value)
        name = sha256(content).digest()
        if name in self._values:
            self._values.move_to_end(name)
        else:
            self._keep(name, value, len(content))
            new.append((name, content))
        return name

    def _value(self, name: bytes) -> Any:
        self._values.move_to_end(name)
        return self._values[name][0]

    def _keep(self, name: bytes, value: object, size_bytes: int) -> None:
        self._values[name] = value, size_bytes
        self._names[id(value)] = name  # it lives as long as its name is known
        self._size += size_bytes

    def _forget(self, name: bytes) -> None:
        value, size_bytes = self._values.pop(name)
        # An equal value may have come under this name since, as another object.
        if self._names.get(id(value)) == name:
            del self._names[id(value)]
        self._size -= size_bytes

    def _superfluous(self) -> list[bytes]:
        names = []
        # One end decides: two that forgot by themselves could disagree on the meaning of a name.
        while self._decides and self._size > self._room_bytes and len(self._values) > 1:
            names.append(next(iter(self._values)))
            self._forget(names[-1])
        return names


def _node(*fields: Any) -> Node:
    name, gpus, free, domain, path, host, disk, unopened, sick = fields
    return Node(
        name=name,
        gpus=gpus,
        free=free,
        domain=domain,
        path=path,
        labels={},
        host_bytes=host,
        unopened=unopened,
        disk_bytes=disk,
        sick=sick,
    )


def _taken_apart(node: Node) -> tuple[Callable[..., Node], tuple[Any, ...]]:
    parts = (node.name, node.gpus, node.free, node.domain, node.path)
    more = (node.host_bytes, node.disk_bytes, node.unopened, node.sick)
    return _node, (*parts, *more)  # planning reads no label


def _copied(proxy: Mapping[Any, Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    # A mappingproxy cannot be pickled; the planner process only reads it.
    return dict, (dict(proxy),)


class _Pickler(pickle.Pickler):
    dispatch_table: Mapping[type, Callable[[Any], Any]] = {
        **copyreg.dispatch_table,
        Node: _taken_apart,
        MappingProxyType: _copied,
    }

    def __init__(self, file: BytesIO, name_of: Callable[[object], bytes | None]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._name_of = name_of

    def persistent_id(self, obj: Any) -> bytes | None:
        return self._name_of(obj) if type(obj) in SHARED else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, value_of: Callable[[bytes], Any]) -> None:
        super().__init__(BytesIO(content))
        self._value_of = value_of

    def persistent_load(self, pid: bytes) -> Any:
        return self._value_of(pid)
