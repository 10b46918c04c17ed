#!/bin/sh
# See that a Chromium is here for the browser tests: install it when root, else say how.
set -eu
for name in ${CHROMIUM:-} chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing Chromium for the browser tests …" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-noto-cjk >/dev/null && exit 0
fi
echo "The browser tests need Chromium, and this machine has none. Install it (on Debian: apt-get install chromium fonts-noto-cjk), or name one: make test CHROMIUM=/path/to/chromium" >&2
exit 1
