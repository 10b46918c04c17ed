#!/bin/sh
# Fill a folder with every wheel that requirements.txt pins, for x86_64 and aarch64.
# Usage: scripts/wheels.sh FOLDER PYTHON_VERSION… (scripts/wheels.sh wheels 3.11 3.12)
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
mkdir -p "$folder"
for version in "$@"; do
    for machine in x86_64 aarch64; do
        echo "Wheels for Python $version on $machine …" >&2
        "${VENV:-.venv}/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$folder" \
            --only-binary=:all: --implementation cp --python-version "$version" \
            --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" \
            -r requirements.txt || {
            echo "Some wheels for Python $version on $machine could not be fetched; pip says above which. Run this where there is a package index." >&2
            exit 1
        }
    done
done
echo "$(ls "$folder" | wc -l) wheels in $folder. Copy that folder beside the Makefile of a machine without an index, then: make up" >&2
