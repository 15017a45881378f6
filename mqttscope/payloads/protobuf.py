"""Decodes Protocol Buffers: messages of a descriptor file, and any messages by their wire format alone.

A descriptor file is written by ``protoc --include_imports --descriptor_set_out=FILE``.  The library `protobuf` reads it
and decodes.  Here its messages become values, limited by `MAX_FIELDS` and by the library's maximum nesting.
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
"""Maximum length of a payload: a field of two bytes takes a hundred bytes of memory."""
MAX_WIRE_BYTES: Final = 1 << 16
"""Maximum length without a descriptor: each field is tried in several ways."""
MAX_DESCRIPTOR_BYTES: Final = 16 << 20
"""Maximum size of a descriptor file."""
MAX_FIELDS: Final = 20_000
"""Maximum number of decoded fields and list items per payload."""
WIRE_DEPTH: Final = 12
"""Maximum nesting of possible messages, without a descriptor."""

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
"""Files of the library, which a descriptor file may omit."""


class DescriptorError(UndecodableError):
    """A descriptor file that cannot be used, or a message that it does not have."""


class MessageType:
    """One message of a descriptor file."""

    def __init__(self, descriptors: bytes, message: str) -> None:
        """``descriptors``: a FileDescriptorSet; `DescriptorError` if it is invalid or lacks the message.

        `UndecodableError` if protobuf is not installed.
        """
        self.name = message
        pool, names = _pool(descriptors)
        try:
            from google.protobuf.message_factory import GetMessageClass

            self._class: Any = GetMessageClass(pool.FindMessageTypeByName(message))
        except KeyError:
            near = get_close_matches(message, names, 1, 0.4) or [name for name in names if name.endswith(f".{message}")]
            hint = f"; did you mean {near[0]}?" if near else ""
            raise DescriptorError(f"it has no message {message}{hint}") from None

    def decode(self, data: bytes) -> tuple[Any, str]:
        """The value of a message, and a remark on it; `UndecodableError` if the bytes are invalid."""
        instance = parse_message(self._class, data)
        return MessageReader().message(instance), unknown_fields_note(instance)


def parse_message(message: Any, data: bytes) -> Any:
    """An instance of a message class from bytes; `UndecodableError` if they are invalid."""
    if len(data) > MAX_PROTOBUF_BYTES:
        raise UndecodableError(f"longer than {MAX_PROTOBUF_BYTES} bytes")
    try:
        return message.FromString(data)
    except Exception as error:  # DecodeError, and other exceptions of some implementations
        raise UndecodableError(str(error)[:120] or type(error).__name__) from None


def unknown_fields_note(message: Any) -> str:
    """Remark on fields at the top level of a message that its descriptor does not define."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    count = len(UnknownFieldSet(message))
    return f"{counted(count, 'field')} that the descriptor does not have" if count else ""


class MessageReader:
    """Converts one message to a value."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def message(self, message: Any, depth: int = 0) -> Any:
        """A map by field names; fields without presence have their default if they were not sent."""
        if depth >= MAX_DEPTH:
            return CUT
        common = _common_text(message)
        if common is not None:
            return common
        pairs = Pairs()
        for field in sorted(message.DESCRIPTOR.fields, key=_number):
            if self._left <= 0:
                pairs.append((CUT, CUT))
                break
            self._left -= 1
            if field.is_repeated:
                values = getattr(message, field.name)
                if values:
                    pairs.append((field.name, self._repeated(field, values, depth + 1)))
            elif not field.has_presence or message.HasField(field.name):
                pairs.append((field.name, self._plain(field, getattr(message, field.name), depth + 1)))
        return pairs

    def _repeated(self, field: Any, held: Any, depth: int) -> Any:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            value = kind.fields_by_name["value"]
            pairs = Pairs()
            for key in held:
                if self._left <= 0:
                    pairs.append((CUT, CUT))
                    break
                self._left -= 1
                pairs.append((key, self._plain(value, held[key], depth)))
            return pairs
        items: list[Any] = []
        for element in held:
            if self._left <= 0:
                items.append(CUT)
                break
            self._left -= 1
            items.append(self._plain(field, element, depth))
        return items

    def _plain(self, field: Any, value: Any, depth: int) -> Any:
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
    except Exception:  # outside the range of the text form
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
        files = FileDescriptorSet.FromString(descriptors)
    except Exception:
        files = FileDescriptorSet()
    if not files.file:
        raise DescriptorError("not a descriptor file, which protoc --include_imports --descriptor_set_out=FILE writes")
    pool = DescriptorPool()
    names: list[str] = []
    for file in _in_order({row.name: row for row in files.file}):
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except Exception as error:  # TypeError, or another exception, depending on the implementation
            raise DescriptorError(f"{file.name[:100]}: {str(error)[:200]}") from None
        names += _message_names(file, file.package)
    return pool, names


def _in_order(files: dict[str, Any]) -> Iterator[Any]:
    """Files of a descriptor set, each after the files that it imports."""
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
            opened = [dependency for dependency in file.dependency if not state.get(dependency)]
            if at in state and opened:
                raise DescriptorError(f"{at[:100]} imports itself")
            state[at] = not opened
            if opened:
                waiting += opened
            else:
                waiting.pop()
                yield file


def _common_file(name: str) -> Any:
    """The descriptor of a file of the library."""
    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if stem not in _COMMON or name != f"google/protobuf/{stem}.proto":
        return None
    from importlib import import_module

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    descriptor = FileDescriptorProto()
    import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(descriptor)
    return descriptor


def _message_names(holder: Any, prefix: str) -> Iterator[str]:
    waiting = [(kind, prefix) for kind in getattr(holder, "message_type", ())]
    while waiting:
        message, before = waiting.pop()
        name = f"{before}.{message.name}" if before else message.name
        yield name
        waiting += [(kind, name) for kind in message.nested_type]


def from_wire(data: bytes) -> Any:
    """The value of a message with an unknown descriptor: a map by field numbers.

    Bytes are shown as text if they are printable, otherwise as a message if they can be one.  `UndecodableError` if the
    bytes are not a message, are too long, or protobuf is not installed.
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
        pairs = Pairs()
        for field in held:
            left[0] -= 1
            if left[0] < 0:
                pairs.append((CUT, CUT))
                break
            pairs.append((field.field_number, value(field.data, depth)))
        return pairs

    def value(content: Any, depth: int) -> Any:
        if isinstance(content, int):
            return content
        if not isinstance(content, bytes):
            return fields(content, depth + 1)  # a group
        shown = printable(content)
        if shown is not None or not content:
            return shown
        if depth < WIRE_DEPTH and left[0] > 0:
            try:
                return fields(UnknownFieldSet(Empty.FromString(content)), depth + 1)
            except Exception:
                return content
        return content

    return fields(UnknownFieldSet(parse_message(Empty, data)), 0)
