#!/bin/sh
# Installs the programs that tests compare with and talk to, when they are missing and apt-get can.
set -eu
missing=""
command -v tshark >/dev/null 2>&1 || missing="$missing tshark"
{ command -v mosquitto >/dev/null 2>&1 || [ -x /usr/sbin/mosquitto ]; } || missing="$missing mosquitto"
command -v mosquitto_pub >/dev/null 2>&1 || missing="$missing mosquitto-clients"
command -v jq >/dev/null 2>&1 || missing="$missing jq"
command -v nc >/dev/null 2>&1 || missing="$missing netcat-openbsd"
command -v xxd >/dev/null 2>&1 || missing="$missing xxd"
# Spark starts the Java that JAVA_HOME names, or that of the path; it needs 17.
java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
jre=""
"$java" -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || jre="openjdk-17-jre-headless"
[ -n "$missing$jre" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "not installed:$missing $jre - the tests that need them are skipped. On Debian: sudo apt-get install$missing $jre" >&2
    exit 0
fi
echo "installing$missing $jre" >&2
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
[ -z "$jre" ] || install "$jre" || install openjdk-21-jre-headless || install openjdk-25-jre-headless ||
    echo "could not install Java - the tests that need it are skipped" >&2
