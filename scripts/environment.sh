#!/bin/sh
# Make .venv and install what a requirements file pins, unless that is what it holds already.
# Usage: scripts/environment.sh requirements.txt [requirements-dev.txt]
# Reads: PYTHON (which interpreter to use), VENV (where; default .venv), WHEELS (default ./wheels).
set -eu
cd "$(dirname "$0")/.."
VENV=${VENV:-.venv}
WHEELS=${WHEELS:-wheels}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" && { echo "$PYTHON"; return; }
        found=$("$PYTHON" -c 'import platform; print("Python", platform.python_version())' 2>/dev/null || echo "no Python")
        echo "PYTHON=$PYTHON is $found, and Ascend Console needs Python 3.11 or newer. Name a newer one: make up PYTHON=/path/to/python3.11" >&2
        return 1
    fi
    for name in python3.11 python3.12 python3.13 python3.14 python3; do
        new_enough "$name" && { echo "$name"; return; }
    done
    found=$(python3 -c 'import platform; print("only Python", platform.python_version())' 2>/dev/null || echo "no Python")
    echo "This machine has $found, and Ascend Console needs Python 3.11 or newer. Install one, or name it: make up PYTHON=/path/to/python3.11" >&2
    return 1
}

make_venv() {
    python=$(find_python)
    "$python" -m venv "$VENV" >/dev/null 2>&1 && return
    rm -rf "$VENV"
    echo "$python could not make $VENV. Install the venv module of that Python (on Debian: apt-get install python3-venv), and check that this folder can be written and has 300 MB free." >&2
    return 1
}

install() { # install FILE: pip, once more in full when it fails quietly
    echo "Installing $1 into $VENV (the first time takes about a minute) …" >&2
    case $1 in *-dev.txt) offline="--find-links $WHEELS" ;; *) offline="--no-index --find-links $WHEELS" ;; esac
    [ -d "$WHEELS" ] || offline=
    # shellcheck disable=SC2086
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input $offline -r "$1" >&2 && return
    if [ -n "$offline" ]; then
        echo "The packages in ./$WHEELS do not satisfy $1 for this Python and machine. Fill the folder again with 'make wheels' where there is an index, or remove it to install from the index." >&2
    else
        echo "The packages of $1 could not be installed. Check pip's words above; with no index in reach, run 'make wheels' on a machine that has one and copy its ./wheels here." >&2
    fi
    return 1
}

# One at a time: two `make` in the same folder would install into one environment.
if command -v flock >/dev/null 2>&1 && [ -z "${ENVIRONMENT_LOCKED:-}" ]; then
    exec env ENVIRONMENT_LOCKED=1 flock "$VENV.lock" "$0" "$@"
fi

if ! new_enough "$VENV/bin/python"; then
    rm -rf "$VENV"
    make_venv
fi
for file in "$@"; do
    stamp="$VENV/.installed-$file"
    digest=$(cat "$file" requirements.txt | sha256sum)
    if [ "$(cat "$stamp" 2>/dev/null)" != "$digest" ]; then
        install "$file"
        echo "$digest" >"$stamp"
    fi
done
