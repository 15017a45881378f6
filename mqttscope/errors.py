"""The exceptions of this package: one root, and the meaning of each.

Malformed bytes are not exceptions: everything in a capture becomes values (`Malformed`, `Unparsed`, `CaptureError`,
gaps).  An exception means that a caller requested something impossible.

    MqttscopeError
        AddressError            an address is invalid (also a ValueError)
        ArgumentError           an argument of the library is invalid (ValueError)
        BadKeysError            a key log cannot be read
        BaselineError           a file of known findings cannot be used (ValueError)
        CannotCaptureError      frames of an interface cannot be captured
            BadCaptureFilterError   its capture filter cannot be compiled
            NotPermittedError       the user may not capture
        CaptureChangedError     a capture has changed since it was read
        CaptureNotFoundError    a name without a capture (FileNotFoundError)
        CaptureReadError        a capture could not be read to its end
        ConfigError             a configuration of the linter cannot be used (ValueError)
        ConversationTextError   a conversation cannot be read; names its line (ValueError)
        ConversionLossError     a field of a packet has no form in the other version
        DamagedError            compressed data cannot be read any further
        ExampleError            the text of an example of a rule is wrong; names file and line (ValueError)
        FilterError             a filter expression is invalid (ValueError)
        FloodedError            a broker sends endlessly to a probe that requested nothing
        IngestFailedError       a task of an ingest failed
        InvalidStateError       a call is not possible before the start, after it or in an event loop (RuntimeError)
        KernelDoubtError        a capture has changed while native code read it (RuntimeError)
        LakeError               a folder of tables cannot be used (ValueError)
        LinkError               a connection to a broker was not made
        MissingPackageError     an optional package is not installed (ImportError)
        MissingToolError        a required program is not installed
        NoBrokerError           the broker to test does not respond
        NoCapturesError         all named captures are unreadable (ValueError)
        NotApplicableError      a recorded connection lacks what a mutation needs
        NotPlayedError          a mutated flow was not played up to its mutation
        NotSerializableError    a value is not plain data (TypeError)
        NothingRecordedError    captures contain no connection that can be played
        OptionError             an option or a column of the data source is invalid (ValueError)
        PayloadConfigError      a table [[payload]] of the configuration cannot be used (ValueError)
        ProfileError            a profile of a broker cannot be used (ValueError)
        RangeRefusedError       a range of a capture has changed
        ReadDifferentlyError    two processes of an ingest read different data
        ReadingError            captures cannot be read as requested
            CannotReadError         the ReadingError of commands
        RefusedError            a broker refused the CONNECT of a probe
        RequestRefusedError     a request to the server of metrics is refused
        RewriteError            a recording cannot be changed as requested (ValueError)
            ConversionError         another version cannot express it
        RuleClashError          two rules have one code or name (ValueError)
        ScanFailedError         a task that reads a range of a capture failed
        ScriptFileError         a connection cannot be written as a script, or a script cannot be read (ValueError)
        SparkUnavailableError   Spark or Java is not installed, or does not start
        StartError              the broker of --spawn did not start
        StateError              written state cannot be read (ValueError)
        TlsError                a certificate, key or CA cannot be used
        TooMuchKeptError        compared captures have too many packets without a counterpart
        UndecodableError        a payload is not in the expected format
            DescriptorError     a descriptor file of Protocol Buffers cannot be used
            PayloadLimitError       a payload may be valid, and is beyond a limit of the decoder
        UnknownQueryError       a statement is not read-only, or cannot be parsed (ValueError)
        UnknownRuleError        no rule has this code or name (ValueError)
        WebSocketError          the other side did not open a usable WebSocket
        WrongReturnError        a check of an own rule returned something other than a report (TypeError)

Commands raise these, which are also `click.ClickException`: a message and an exit code.

    MqttscopeError
        BadQuestionError        a query on a lake is invalid
        CannotWriteError        an output file cannot be written
        CommandFailedError      a command cannot do its work
        PipelineFailedError     a job of the pipeline failed
        SecondProcessLostError  the second process of a command ended without a result

`net.frame.CaptureError` is not an exception, but an event.  `mqtt.wire.Fault` is the only exception with a name that
does not end in ``Error``: it marks malformed bytes, and never leaves the decoder.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class MqttscopeError(Exception):
    """Root of all exceptions of this package."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickling calls the constructor with the message, which not every constructor accepts.
        reduced: Any = super().__reduce__()
        _, _, *attributes = reduced
        return _remade, (type(self), self.args), *attributes


def _remade(kind: type[MqttscopeError], arguments: tuple[Any, ...]) -> MqttscopeError:
    """Recreate an error from another process, without its attributes."""
    error: MqttscopeError = kind.__new__(kind, *arguments)
    error.args = arguments
    return error


def schema_fault(written: object, known: int, name: str = "schema") -> str:
    """Reason to refuse a file with a schema that this version does not read, or empty."""
    if type(written) is int and written > known:
        return f"a later version of mqttscope wrote it ({name} {written}, this version reads {known}): update mqttscope"
    return "" if type(written) is int and written == known else f"{name} is not {known}"


class ArgumentError(MqttscopeError, ValueError):
    """An argument is invalid; the message gives the reason."""


class InvalidStateError(MqttscopeError, RuntimeError):
    """A call is not possible now: before the start, after it, or inside an event loop."""
