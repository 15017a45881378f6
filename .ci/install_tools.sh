#!/bin/sh
# Installs programs that tests compare with and talk to, when they are missing: install_tools.sh [PROGRAM...]
# Without arguments, all that any test needs. They come from Debian's packages, if this is root's shell and there is
# apt-get, or from npm.
set -eu
[ $# -gt 0 ] || set -- tshark mosquitto mosquitto_pub jq nc xxd openssl java groff zsh fish chromium pdftotext azurite-blob

# The package of a program, where it has another name.
package() {
    case $1 in
        mosquitto_pub) echo mosquitto-clients ;;
        nc) echo netcat-openbsd ;;
        groff) echo groff-base ;;
        pdftotext) echo poppler-utils ;;
        java) echo openjdk-17-jre-headless ;;
        *) echo "$1" ;;
    esac
}

is_there() {
    case $1 in
        # Spark starts the Java that JAVA_HOME names, or that of the path; it needs 17.
        java) "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' ;;
        chromium) command -v chromium || command -v chromium-browser || command -v google-chrome ;;
        *) command -v "$1" || [ -x "/usr/sbin/$1" ] ;;
    esac >/dev/null 2>&1
}

missing=""
java=""
npm=""
for program in "$@"; do
    is_there "$program" && continue
    case $program in
        java) java=$(package java) ;;
        azurite-blob) npm=azurite ;;
        *) missing="$missing $(package "$program")" ;;
    esac
done

if [ -n "$npm" ]; then
    if command -v npm >/dev/null 2>&1; then
        echo "installing $npm" >&2
        npm install --global --silent --no-audit --no-fund "$npm" >/dev/null 2>&1 ||
            echo "could not install $npm - the tests that need it are skipped" >&2
    else
        echo "not installed: $npm - the tests that need it are skipped. With npm: npm install --global $npm" >&2
    fi
fi
[ -n "$missing$java" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "not installed:$missing $java - the tests that need them are skipped. On Debian, as root: apt-get install$missing $java" >&2
    exit 0
fi
echo "installing$missing $java" >&2
export DEBIAN_FRONTEND=noninteractive
updated=""

# Installs packages, with fresh lists of them where they are not found in the old ones.
install() {
    apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 && return
    [ -z "$updated" ] || return 1
    updated=yes
    apt-get update -q >/dev/null 2>&1 || true
    apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1
}

# shellcheck disable=SC2086 - the names are words
[ -z "$missing" ] || install $missing || echo "could not install$missing - the tests that need them are skipped" >&2
# Apart from the others, since each release has another Java.
[ -z "$java" ] || install "$java" || install openjdk-21-jre-headless || install openjdk-25-jre-headless ||
    echo "could not install Java - the tests that need it are skipped" >&2
