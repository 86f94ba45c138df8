#!/bin/sh
# Have everything that `make` needs: Debian packages, a Python of 3.11 or later, and .venv.
# Quiet and quick when all of it is there. Exit 2 with one line when it cannot be had.
set -u
cd "$(dirname "$0")/../.." || exit 2

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 2; }
have() { command -v "$1" >/dev/null 2>&1; }

# --- what must be installed on the machine -------------------------------------------------------

# A Python that is new enough; pyenv's shims and others on PATH may be older or mere stubs.
usable_python() {
    for candidate in python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
        have "$candidate" || continue
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        # Debian splits ensurepip off into python3-venv.
        "$candidate" -c 'import ensurepip, venv' 2>/dev/null || continue
        # The program itself: a shim would choose anew in every directory.
        "$candidate" -c 'import sys; print(sys.executable)'
        return 0
    done
    return 1
}

root_tools() {  # packages of the tools that network namespaces and certificates need
    have openssl || printf ' openssl'
    have ip && have tc || printf ' iproute2'
    have sysctl || printf ' procps'
}

install_packages() {
    have apt-get || fail "found no apt-get, expected a Debian machine with:$1"
    say "installing Debian packages:$1"
    log=$(mktemp) || fail "no temporary file can be made in ${TMPDIR:-/tmp}"
    export DEBIAN_FRONTEND=noninteractive
    [ -n "$(find /var/lib/apt/lists -name '*Packages*' 2>/dev/null | head -n 1)" ] ||
        apt-get -qq update >"$log" 2>&1
    # shellcheck disable=SC2086  # the names are words
    if ! apt-get -qq -y --no-install-recommends install $1 >>"$log" 2>&1 </dev/null; then
        # Lists older than the mirror name files that are gone.
        apt-get -qq update >>"$log" 2>&1
        apt-get -qq -y --no-install-recommends install $1 >"$log" 2>&1 </dev/null || {
            reason=$(grep -m 1 '^E:' "$log"); rm -f "$log"
            fail "apt-get could not install$1: ${reason:-no reason given}"
        }
    fi
    rm -f "$log"
}

if [ "$(id -u)" = 0 ]; then
    missing=$(root_tools)
    [ -z "$missing" ] || install_packages "$missing"
fi

# --- .venv -----------------------------------------------------------------------------------------

# What the environment was made from; written last, so that an environment without it is unfinished.
stamp=.venv/adon-stamp
wanted=$(cat setup.py constraints.txt pyproject.toml | sha256sum) || fail "sha256sum: not found"
wanted="$PWD ${wanted%% *}"
current() { [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; }

# Machine code of what selects sites, made once for a source, so that no workflow waits for it.
# Not worth failing for: whoever needs it can make it, or do without.
compile_kernels() {
    kernels=$(cat site_selector/mapping/kernels/*.py | sha256sum)
    [ "$(cat .venv/adon-kernels 2>/dev/null)" != "$kernels" ] || return 0
    setpriv --pdeathsig KILL -- .venv/bin/python -m site_selector.warm 2>&1 | sed -u 's/^/setup: /' >&2
    { echo "$kernels" >.venv/adon-kernels; } 2>/dev/null
    return 0
}

current && { compile_kernels; exit 0; }

# One at a time; the kernel gives the lock back whatever becomes of us.
exec 9<. || fail "$PWD cannot be read"
flock -n 9 || { say "waiting for another run that is setting up"; flock 9; }
current && { compile_kernels; exit 0; }
[ -w . ] || fail "$PWD cannot be written, expected a checkout of your own"

python=$(usable_python) || {
    [ "$(id -u)" = 0 ] ||
        fail "found no Python 3.11 with venv; root has to run: apt-get install python3 python3-venv"
    install_packages " python3 python3-venv"
    python=$(usable_python) || fail "found no Python of 3.11 or later, also not after installing it"
}

log=.adon/setup.log
explain() {
    if grep -q 'No space left on device' "$log"; then echo "the disk is full"
    elif grep -q 'Permission denied' "$log"; then echo "$(grep -m 1 'Permission denied' "$log")"
    elif grep -Eq 'NewConnectionError|NameResolutionError|name resolution|ProxyError|Timeout|unreachable' "$log"
    then echo "no network: Python packages could not be downloaded"
    elif grep -q 'CERTIFICATE_VERIFY_FAILED' "$log"
    then echo "the package index's certificate is not trusted on this machine"
    else grep -m 1 -E 'ERROR|Error' "$log" || echo "see $PWD/$log"; fi
}
# Output to the log; every tenth package shows that it goes on. Killed with this script, because
# an installer that outlives a killed make would change .venv under the next one.
logged() {
    setpriv --pdeathsig KILL -- "$@" >>"$log" 2>&1 &
    shown=0
    while kill -0 $! 2>/dev/null; do
        sleep 1
        tens=$(($(grep -cE '^ *(Collecting|Requirement)' "$log") / 10))
        [ "$tens" -le "$shown" ] || say "  ${tens}0 packages so far"
        shown=$tens
    done
    wait $!
}

{ mkdir -p .adon && : >"$log"; } 2>/dev/null ||
    fail "$PWD/$log cannot be written (no space, or no permission)"
# An environment that was whole is brought up to date; whatever else there is, is made anew.
if [ ! -f "$stamp" ] || [ "$(cut -d ' ' -f 1 "$stamp")" != "$PWD" ] ||
    ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    rm -rf .venv || fail "$PWD/.venv cannot be removed"
    say "making .venv with $("$python" -V 2>&1) ($python)"
    logged "$python" -m venv .venv || fail "no virtual environment: $(explain)"
fi
rm -f "$stamp"
say "installing Python packages into .venv"
logged .venv/bin/python -m pip --disable-pip-version-check install \
    --no-input --progress-bar off -c constraints.txt -e '.[test]' ||
    fail "Python packages: $(explain)"
{ echo "$wanted" >"$stamp.new" && mv "$stamp.new" "$stamp"; } 2>/dev/null ||
    fail "$PWD/.venv cannot be written (no space, or no permission)"
rm -f "$log"
compile_kernels
# The planner plug-in's jar, where there is a JDK; else it is built, with one, when it is asked for.
! have javac || .venv/bin/python -m pegasus_hooks.plugin.build >/dev/null 2>&1 ||
    say "the planner plug-in could not be built now"
say "ready"
