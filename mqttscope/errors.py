"""The exceptions of this package: one root, and what each means.

Malformed bytes are no exceptions: what a capture holds comes out as values (`Malformed`, `Unparsed`, `CaptureError`,
gaps).  An exception says that a caller asked for something that cannot be done.

    MqttscopeError
        AddressError            an address cannot be meant (also a ValueError)
        ArgumentError           an argument of the library cannot be meant (ValueError)
        BadKeysError            a key log cannot be read
        BaselineError           a file of known findings cannot be used (ValueError)
        CannotCaptureError      frames of an interface cannot be captured
            BadCaptureFilterError   its capture filter cannot be compiled
            NotPermittedError       the user may not capture
        CaptureChangedError     a capture that was read before is another one now
        CaptureNotFoundError    a name stands for no capture (FileNotFoundError)
        CaptureReadError        a capture could not be read to its end
        ConfigError             a configuration of the linter cannot be used (ValueError)
        ConversationTextError   a conversation cannot be read; names its line (ValueError)
        ConversionLossError     a field of a packet has no form in the other version
        DamagedError            compressed data cannot be read any further
        ExampleError            the text of an example of a rule is wrong; names file and line (ValueError)
        FilterError             a filter expression cannot be understood (ValueError)
        FloodedError            a broker sends without end to a probe that has asked for nothing
        IndivisibleError        captures cannot be shared out over processes
        IngestFailedError       a task of an ingest failed
        InvalidStateError       a call is not possible before the start, after it or in an event loop (RuntimeError)
        LakeError               a folder of tables cannot be used (ValueError)
        LinkError               a connection to a broker was not made
        MissingPackageError     an optional package is not installed (ImportError)
        MissingToolError        a program that is needed is not installed
        NoBrokerError           there is no broker to test that serves
        NoCapturesError         nothing that was named can be read (ValueError)
        NotApplicableError      a recorded connection lacks what a mutation needs
        NotPlayedError          a mutated flow was not played up to its mutation
        NotSerializableError    a value is no plain data (TypeError)
        NothingRecordedError    captures hold no connection that could be played
        OptionError             an option or a column of the data source makes no sense (ValueError)
        PayloadConfigError      a table [[payload]] of the configuration cannot be (ValueError)
        PayloadConfigError      a table [[payload]] of the configuration cannot be used (ValueError)
        ProfileError            a profile of a broker cannot be used (ValueError)
        RangeRefusedError       a range of a capture does not hold what it held before
        ReadDifferentlyError    two processes of an ingest have not read the same
        ReadingError            captures cannot be read as asked
            CannotReadError         the same: commands raise this one
        RefusedError            a broker refused the CONNECT of a probe
        RewriteError            a recording cannot be changed as asked (ValueError)
            ConversionError         it cannot be said in another version
        RuleClashError          two rules have one code or name (ValueError)
        ScanFailedError         a task that reads a range of a capture failed
        ScriptFileError         a connection cannot be written as a script, or a script cannot be read (ValueError)
        SparkUnavailableError   Spark or Java is not installed, or does not start
        StartError              a broker that was to be started did not start
        StateError              written state cannot be read (ValueError)
        TlsError                a certificate, key or CA cannot be used
        TooMuchKeptError        captures that are compared have too much that the other lacks
        UndecodableError        a payload does not hold what it is to hold
            DescriptorError     a descriptor file of Protocol Buffers cannot be used
        UnknownQueryError       a statement does more than ask, or cannot be parsed (ValueError)
        UnknownRuleError        no rule has this code or name (ValueError)
        WebSocketError          the other side did not open a usable WebSocket
        WorkerLostError         a process that shared the work ended before its end
        WrongReturnError        a check of a rule made elsewhere returned what is no report (TypeError)

Commands raise these, which are also `click.ClickException`: a message and an exit code.

    MqttscopeError
        BadQuestionError        a question to a lake cannot be answered
        CannotWriteError        an output file cannot be written
        CommandFailedError      what a command is for cannot be done
        PipelineFailedError     a job of the pipeline failed
        ShareFailedError        a process that shared the work of a command ended before its end

`net.frame.CaptureError` is none of them, but an event.  `mqtt.wire.Fault` is the single exception whose name does not
end in ``Error``: it says where a reader met bytes that break the layout, and never leaves the decoder.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class MqttscopeError(Exception):
    """Something cannot be done; the subclasses say what."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are made again with their texts, which is not what every constructor takes.
        reduced: Any = super().__reduce__()
        _, _, *attributes = reduced
        return _remade, (type(self), self.args), *attributes


def _remade(kind: type[MqttscopeError], arguments: tuple[Any, ...]) -> MqttscopeError:
    """An error that comes from another process, before it has its attributes."""
    made: MqttscopeError = kind.__new__(kind, *arguments)
    made.args = arguments
    return made


def schema_fault(written: object, known: int, name: str = "schema") -> str:
    """Why a file is refused whose schema is not the one that this version reads; empty if it is."""
    if type(written) is int and written > known:
        return f"a later version of mqttscope wrote it ({name} {written}, this version reads {known}): update mqttscope"
    return "" if type(written) is int and written == known else f"{name} is not {known}"


class ArgumentError(MqttscopeError, ValueError):
    """An argument cannot be meant; the text says why."""


class InvalidStateError(MqttscopeError, RuntimeError):
    """A call is not possible now: before the start, after it, or inside an event loop; the text says why."""
