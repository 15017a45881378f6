"""Decodes Protocol Buffers: messages of a descriptor file, and any by their wire format alone.

A descriptor file is what ``protoc --include_imports --descriptor_set_out=FILE`` writes.  The library `protobuf` reads
it and decodes; here its messages become values, bounded by `MAX_FIELDS` and by the nesting that the library allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from mqttscope.mqtt.view import printable
from mqttscope.mqtt.wire import counted
from mqttscope.payloads.values import CUT, MAX_DEPTH, Pairs, UndecodableError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool

MAX_PROTOBUF_BYTES: Final = 1 << 18
"""Longer payloads are not decoded: a field of two bytes takes a hundred in memory."""
MAX_WIRE_BYTES: Final = 1 << 16
"""The same without a descriptor, where each field is looked at in several ways."""
MAX_DESCRIPTOR_BYTES: Final = 16 << 20
"""Longest descriptor file."""
MAX_FIELDS: Final = 20_000
"""Fields of one payload, and items of its lists, that are decoded."""
WIRE_DEPTH: Final = 12
"""Levels of what may be messages within messages, without a descriptor."""

_COMMON: Final = (
    "any",
    "api",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "type",
    "wrappers",
)
"""Files that come with the library, which a descriptor file may leave out."""


class DescriptorError(UndecodableError):
    """A descriptor file that cannot be used, or a message that it does not have."""


class MessageType:
    """One message of a descriptor file."""

    def __init__(self, descriptors: bytes, message: str) -> None:
        """``descriptors``: a FileDescriptorSet; `DescriptorError` for one that is none, or has no such message.

        `UndecodableError` where protobuf is not installed.
        """
        self.name = message
        pool, names = _pool(descriptors)
        try:
            from google.protobuf.message_factory import GetMessageClass

            self._class: Any = GetMessageClass(pool.FindMessageTypeByName(message))
        except KeyError:
            near = get_close_matches(message, names, 1, 0.4) or [one for one in names if one.endswith(f".{message}")]
            hint = f"; did you mean {near[0]}?" if near else ""
            raise DescriptorError(f"there is no message {message} in it{hint}") from None

    def decode(self, data: bytes) -> tuple[Any, str]:
        """The value of a message, and what has to be said of it; `UndecodableError` where the bytes are none."""
        made = parsed(self._class, data)
        return Reader().message(made), unknown_told(made)


def parsed(message: Any, data: bytes) -> Any:
    """An instance of a message class from bytes; `UndecodableError` where they are none."""
    if len(data) > MAX_PROTOBUF_BYTES:
        raise UndecodableError(f"longer than {MAX_PROTOBUF_BYTES} bytes")
    try:
        return message.FromString(data)
    except Exception as error:  # DecodeError, and whatever else an implementation of the library raises
        raise UndecodableError(str(error)[:120] or type(error).__name__) from None


def unknown_told(message: Any) -> str:
    """What to say of fields at the top of a message that its descriptor does not have."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    count = len(UnknownFieldSet(message))
    return f"{counted(count, 'field')} that the descriptor does not have" if count else ""


class Reader:
    """Makes a value of one message."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def message(self, message: Any, depth: int = 0) -> Any:
        """A map by the names of fields; those without presence have their default where they were not sent."""
        if depth >= MAX_DEPTH:
            return CUT
        common = _common_text(message)
        if common is not None:
            return common
        made = Pairs()
        for field in sorted(message.DESCRIPTOR.fields, key=_number):
            if self._left <= 0:
                made.append((CUT, CUT))
                break
            self._left -= 1
            if field.is_repeated:
                held = getattr(message, field.name)
                if held:
                    made.append((field.name, self._repeated(field, held, depth + 1)))
            elif not field.has_presence or message.HasField(field.name):
                made.append((field.name, self._one(field, getattr(message, field.name), depth + 1)))
        return made

    def _repeated(self, field: Any, held: Any, depth: int) -> Any:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            value = kind.fields_by_name["value"]
            made = Pairs()
            for key in held:
                if self._left <= 0:
                    made.append((CUT, CUT))
                    break
                self._left -= 1
                made.append((key, self._one(value, held[key], depth)))
            return made
        items: list[Any] = []
        for one in held:
            if self._left <= 0:
                items.append(CUT)
                break
            self._left -= 1
            items.append(self._one(field, one, depth))
        return items

    def _one(self, field: Any, value: Any, depth: int) -> Any:
        if field.message_type is not None:
            return self.message(value, depth)
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            return value if known is None else known.name
        return value


def _number(field: Any) -> int:
    number: int = field.number
    return number


def _common_text(message: Any) -> Any:
    """A time or a duration as text; ``None`` for other messages."""
    if message.DESCRIPTOR.full_name not in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return None
    try:
        return message.ToJsonString()
    except Exception:  # out of the range of what can be written
        return f"{message.seconds}.{abs(message.nanos):09d}"


def _pool(descriptors: bytes) -> tuple[DescriptorPool, list[str]]:
    """A pool of all files of a FileDescriptorSet, and the full names of their messages."""
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.descriptor_pool import DescriptorPool
    except ImportError:
        raise UndecodableError("protobuf is not installed (pip install protobuf)") from None
    if len(descriptors) > MAX_DESCRIPTOR_BYTES:
        raise DescriptorError(f"longer than {MAX_DESCRIPTOR_BYTES >> 20} MiB")
    try:
        held = FileDescriptorSet.FromString(descriptors)
    except Exception:
        held = FileDescriptorSet()
    if not held.file:
        raise DescriptorError("not a descriptor file, which protoc --include_imports --descriptor_set_out=FILE writes")
    pool = DescriptorPool()
    names: list[str] = []
    for file in _in_order({one.name: one for one in held.file}):
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except Exception as error:  # TypeError of one implementation, others of others
            raise DescriptorError(f"{file.name[:100]}: {str(error)[:200]}") from None
        names += _message_names(file, file.package)
    return pool, names


def _in_order(files: dict[str, Any]) -> Iterator[Any]:
    """Files of a descriptor set, each after those that it imports."""
    state: dict[str, bool] = {}
    for name in list(files):
        waiting = [name]
        while waiting:
            at = waiting[-1]
            if state.get(at):
                waiting.pop()
                continue
            file = files.get(at) or _common_file(at)
            if file is None:
                raise DescriptorError(f"it lacks {at[:100]}, which it imports: write it with --include_imports")
            opened = [one for one in file.dependency if not state.get(one)]
            if at in state and opened:
                raise DescriptorError(f"{at[:100]} imports itself")
            state[at] = not opened
            if opened:
                waiting += opened
            else:
                waiting.pop()
                yield file


def _common_file(name: str) -> Any:
    """The descriptor of a file that comes with the library."""
    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if stem not in _COMMON or name != f"google/protobuf/{stem}.proto":
        return None
    from importlib import import_module

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    made = FileDescriptorProto()
    import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(made)
    return made


def _message_names(holder: Any, prefix: str) -> Iterator[str]:
    waiting = [(one, prefix) for one in getattr(holder, "message_type", ())]
    while waiting:
        message, before = waiting.pop()
        name = f"{before}.{message.name}" if before else message.name
        yield name
        waiting += [(one, name) for one in message.nested_type]


def from_wire(data: bytes) -> Any:
    """The value of a message whose descriptor is not known: a map by the numbers of fields.

    Bytes are shown as text where they are, else as a message where they can be one.  `UndecodableError` where the bytes
    are no message, or too long, or protobuf is not installed.
    """
    try:
        from google.protobuf.empty_pb2 import Empty
        from google.protobuf.unknown_fields import UnknownFieldSet
    except ImportError:
        raise UndecodableError("protobuf is not installed (pip install protobuf)") from None
    if len(data) > MAX_WIRE_BYTES:
        raise UndecodableError(f"longer than {MAX_WIRE_BYTES} bytes without a descriptor")
    left = [MAX_FIELDS]

    def fields(held: Any, depth: int) -> Pairs:
        made = Pairs()
        for one in held:
            left[0] -= 1
            if left[0] < 0:
                made.append((CUT, CUT))
                break
            made.append((one.field_number, value(one.data, depth)))
        return made

    def value(found: Any, depth: int) -> Any:
        if isinstance(found, int):
            return found
        if not isinstance(found, bytes):
            return fields(found, depth + 1)  # a group
        shown = printable(found)
        if shown is not None or not found:
            return shown
        if depth < WIRE_DEPTH and left[0] > 0:
            try:
                return fields(UnknownFieldSet(Empty.FromString(found)), depth + 1)
            except Exception:
                return found
        return found

    return fields(UnknownFieldSet(parsed(Empty, data)), 0)
