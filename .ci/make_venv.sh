#!/bin/sh
# Makes a virtual environment: make_venv.sh PYTHON DIRECTORY.  Debian ships Python without ensurepip; where that is so
# and root may install packages, python3-venv is installed.
set -eu
python=$1
directory=$2

if ! command -v "$python" >/dev/null 2>&1; then
    echo "mqttscope needs Python 3.11 or later, and there is no '$python'. On Debian: apt-get install python3 python3-venv" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "mqttscope needs Python 3.11 or later; '$python' is $("$python" --version 2>&1). Use make PYTHON=/path/to/python3.11" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
        echo "installing python3-venv (this Python has no ensurepip)" >&2
        apt-get install -y -q python3-venv >/dev/null 2>&1 ||
            { apt-get update -q >/dev/null 2>&1; apt-get install -y -q python3-venv >/dev/null; }
    else
        echo "this Python cannot make virtual environments. On Debian: sudo apt-get install python3-venv" >&2
        exit 1
    fi
fi
[ -x "$directory/bin/python" ] || "$python" -m venv "$directory"
