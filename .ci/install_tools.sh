#!/bin/sh
# Installs the programs that tests compare with and talk to, when they are missing and apt-get can.
set -eu
missing=""
command -v tshark >/dev/null 2>&1 || missing="$missing tshark"
{ command -v mosquitto >/dev/null 2>&1 || [ -x /usr/sbin/mosquitto ]; } || missing="$missing mosquitto"
command -v mosquitto_pub >/dev/null 2>&1 || missing="$missing mosquitto-clients"
command -v jq >/dev/null 2>&1 || missing="$missing jq"
# Spark starts the Java that JAVA_HOME names, or that of the path; it needs 17.
java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
"$java" -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || missing="$missing openjdk-17-jre-headless"
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "not installed:$missing - the tests that need them are skipped. On Debian: sudo apt-get install$missing" >&2
    exit 0
fi
echo "installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 - the names are words
apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1 ||
    { apt-get update -q >/dev/null 2>&1; apt-get install -y -q --no-install-recommends $missing >/dev/null; } ||
    echo "could not install$missing - the tests that need them are skipped" >&2
