#!/bin/sh
# Installs programs that tests compare with and talk to, when they are missing: install_tools.sh [PROGRAM...]
# Without arguments, all that any test needs. They come from Debian's packages, if this is root's shell and there is
# apt-get, or from npm.
set -eu
[ $# -gt 0 ] || set -- tshark mosquitto mosquitto_pub jq nc xxd openssl java groff zsh fish chromium pdftotext azurite-blob npm prometheus

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
azurite=""
for program in "$@"; do
    is_there "$program" && continue
    case $program in
        java) java=$(package java) ;;
        azurite-blob) azurite=azurite ;;
        *) missing="$missing $(package "$program")" ;;
    esac
done
[ -n "$missing$java$azurite" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    echo "not installed:$missing $java $azurite - the tests that need them are skipped. As root: sh .ci/install_tools.sh $*" >&2
    exit 0
fi
echo "installing$missing $java $azurite" >&2
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

install_azurite() {
    command -v npm >/dev/null 2>&1 || install npm || return 1
    npm install --global --silent --no-audit --no-fund azurite >/dev/null 2>&1
}

could_not() {
    echo "could not install$* - the tests that need it are skipped" >&2
}

# shellcheck disable=SC2086 - the names are words
[ -z "$missing" ] || install $missing || could_not "$missing"
# Apart from the others, since each release has another Java.
[ -z "$java" ] || install "$java" || install openjdk-21-jre-headless || install openjdk-25-jre-headless || could_not " Java"
[ -z "$azurite" ] || install_azurite || could_not " azurite"
