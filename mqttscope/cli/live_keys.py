"""The keys of a live capture: from the option or the environment, and what is said of them."""

from __future__ import annotations

import os

from mqttscope.capture.keylog import BadKeysError
from mqttscope.capture.tls_live import KEY_SECONDS, LiveDecryption
from mqttscope.capture.tshark_process import MissingToolError
from mqttscope.cli.output import warn
from mqttscope.cli.reading import KEYLOG_VARIABLE, CannotDecrypt
from mqttscope.mqtt.wire import counted


class LiveKeys(LiveDecryption):
    """Decryption of a live capture, and what to say at its end."""

    def advice(self) -> str | None:
        """What to say at the end where the keys opened nothing."""
        if self.records or self.failures:
            return None
        if not self.sessions:
            return f"no TLS connection began, so that the keys in {self.keylog.path} opened none"
        return f"no TLS record could be decrypted with the keys in {self.keylog.path}{self._late()}"

    def _late(self) -> str:
        if not self.keyless:
            return ""
        return (
            f"; the keys of {counted(self.keyless, 'connection')} were not in it {KEY_SECONDS:g} s after the beginning,"
            " and later keys are of no use"
        )


def live_keys(keylog: str | None) -> LiveKeys | None:
    """Decryption with ``--keylog`` or the file of the environment; none without.

    `CannotDecrypt` where what the option names cannot be used; what the environment names is left alone then.
    """
    if keylog is None:
        keylog = os.environ.get(KEYLOG_VARIABLE, "")
        if not keylog:
            return None
        # Set for other programs as well, so that what is wrong with it is no reason to stop.
        try:
            keys = LiveKeys(keylog)
        except (BadKeysError, MissingToolError) as error:
            warn(f"{error} (${KEYLOG_VARIABLE})")
            return None
    else:
        try:
            keys = LiveKeys(keylog)
        except (BadKeysError, MissingToolError) as error:
            raise CannotDecrypt(str(error)) from None
    if not keys.keylog.exists:
        warn(f"key log {keylog} does not exist yet; waiting for it")
    return keys
