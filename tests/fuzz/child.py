"""No matter how a target ends, its process ends with it: libFuzzer leaves by exiting, so each target gets its own.

``python -m tests.fuzz.child TARGET SEEDS [libFuzzer's arguments]``: writes the target's seeds and words into the
directory SEEDS, instruments the package and fuzzes.
"""

from __future__ import annotations

import sys
from hashlib import sha1
from pathlib import Path

import atheris


def main(arguments: list[str]) -> None:
    """Fuzz one target."""
    name, directory, *rest = arguments
    with atheris.instrument_imports(include=["mqttscope"]):
        from tests.fuzz.target import load

        target = load(name)
    seeds = Path(directory) / "seeds"
    seeds.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (seeds / sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    words = [f'"{_quoted(word)}"\n' for word in sorted(set(target.dictionary())) if word]
    if words:
        dictionary = Path(directory) / "words.txt"
        dictionary.write_text("".join(words))
        rest.append(f"-dict={dictionary}")
    # The first directory that libFuzzer is given is where new inputs go; the seeds come after it.
    atheris.Setup(
        [sys.argv[0], *rest, f"-max_len={target.max_length}", str(seeds)], target.check, enable_python_coverage=True
    )
    atheris.Fuzz()


def _quoted(word: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main(sys.argv[1:])
