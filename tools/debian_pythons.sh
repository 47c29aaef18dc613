#!/usr/bin/env bash
# Installs a Debian sid with CPythons that this machine lacks, for tests; takes about 3 minutes.
#
#     bash tools/debian_pythons.sh make FOLDER VERSION...     for example 3.14 3.15
#     bash tools/debian_pythons.sh run FOLDER COMMAND...      run a command in it, as root
#
# FOLDER/root is the system with compiler and Pythons; its folder /root/wheels has the packages
# that the tests need, so "run" needs no network.  Needs root and a Debian whose mirror has sid;
# installs debootstrap if it is missing.  Exit status 3, with one line: not possible here.
set -euo pipefail

no() {
    printf '%s\n' "$*" >&2
    exit 3
}

make() {
    local folder=$1 mirror include=gcc,libc6-dev,make python
    shift
    [ "$(id -u)" -eq 0 ] || no "only root can make a chroot"
    unshare --mount true 2>/dev/null || no "a mount namespace cannot be made here"
    command -v apt-get >/dev/null || no "this is no Debian: there is no apt-get"
    # shellcheck disable=SC2016 # apt's variable
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
        grep -E '/debian/?$' | sort -u | head -n 1) || no "apt's sources name no Debian mirror"
    if ! command -v debootstrap >/dev/null; then
        { timeout 200 apt-get -qq update && DEBIAN_FRONTEND=noninteractive timeout 200 \
            apt-get -qq -y --no-install-recommends install debootstrap; } >/dev/null ||
            no "debootstrap cannot be installed"
    fi
    for python in "$@"; do
        include+=",python$python-dev,python$python-venv,libpython$python-testsuite"
    done
    mkdir -p "$folder"
    # The namespace removes mounts that an interrupted debootstrap leaves.
    timeout 900 unshare --mount debootstrap --variant=minbase --include="$include" sid \
        "$folder/root" "$mirror" >"$folder/log" 2>&1 ||
        no "debootstrap of sid with $* failed: $(tail -n 1 "$folder/log")"
    # The newest releases that have one wheel for every Python.
    timeout 300 python3 -m pip download -qq --dest "$folder/root/root/wheels" --only-binary :all: \
        --implementation py --abi none --platform any --python-version "${!#}" \
        pytest hypothesis setuptools >"$folder/log" 2>&1 ||
        no "pip could not download what the tests need: $(tail -n 1 "$folder/log")"
}

run() {
    local folder=$1
    shift
    # shellcheck disable=SC2016 # expanded by the shell in the namespace
    # A test ends a terminal.
    unshare --mount bash -c 'mount -t proc proc "$0/proc" && mount -t devpts devpts "$0/dev/pts" &&
        exec chroot "$0" "$@"' \
        "$folder/root" "$@"
}

case ${1:-} in
make | run) "$@" ;;
*)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$0" >&2
    exit 2
    ;;
esac
