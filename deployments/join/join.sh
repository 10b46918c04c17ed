
# What comes before this line are values; from here on the script is the same for every server.
# It finds a Python, fetches the agent from the console, checks its digest, and lets it install itself:
# deployments/agent/join.py. Running it again repairs.
# Exported before it runs:
#   PYTHON=/path/to/python3   use this Python (3.10 or newer)
#   PREFIX=/some/folder       without root: everything goes below this folder and runs as this user
#   AGENT_USER=name           with root: the account of the agent, made where it does not exist (ascend-console)
#   NO_ROOT_HELPER=1          with root: install no root helper; job kinds that need root are then missing
set -u
umask 022

say() { # say ZH EN
    case "${LC_ALL:-${LC_MESSAGES:-${LANG:-}}}" in zh*) echo "$1" ;; *) echo "$2" ;; esac
}

stop() { # stop CODE ZH EN [DETAIL]: tell the operator and the console why, and end
    say "$2" "$3" >&2
    report "$1" "${4:-$3}"
    exit 1
}

report() { # report CODE DETAIL: where it does not get through, the page says nothing
    if command -v curl >/dev/null 2>&1; then
        set -- "$1 $2"
        text=$1
        set -- -sS -m 10 --noproxy '*' --data-binary "$text" -H 'Content-Type: text/plain' -o /dev/null
        [ -z "$PIN" ] || set -- "$@" -k --pinnedpubkey "$PIN"
        curl "$@" "$CONSOLE/join/$TOKEN/problem" 2>/dev/null
    fi
    return 0
}

elevate() {
    [ "$(id -u)" != 0 ] && [ -z "${PREFIX:-}" ] || return 0
    command -v sudo >/dev/null 2>&1 || stop permission \
        "需要 root 权限，而这里没有 sudo。请以 root 运行，或先 export PREFIX=/目录，安装到自己的目录。" \
        "This needs root, and there is no sudo here. Run it as root, or “export PREFIX=/folder” first, to install into a folder of yours."
    say "需要 root 权限，改用 sudo 继续。" "This needs root, so it goes on with sudo."
    exec sudo env LANG="${LANG:-C}" PYTHON="${PYTHON:-}" AGENT_USER="${AGENT_USER:-}" \
        NO_ROOT_HELPER="${NO_ROOT_HELPER:-}" sh "$0"
}

check_prefix() {
    prefix=${PREFIX:-/opt/ascend-console}
    case $prefix in
    /*[!A-Za-z0-9._/-]* | [!/]* | /) stop permission \
        "PREFIX 只能是绝对路径，且只含字母、数字与 . _ / -。请换一个目录。" \
        "PREFIX must be an absolute path of letters, digits and . _ / - only. Choose another folder." ;;
    esac
    mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ] || stop permission \
        "无法写入 $prefix。请以 root 运行，或把 PREFIX 设为可写的目录。" \
        "$prefix cannot be written. Run this as root, or set PREFIX to a folder that this user may write."
    if [ ! -e "$prefix/etc/install.json" ] && [ ! -e "$prefix/.joining" ] && [ -n "$(ls -A "$prefix")" ]; then
        stop permission "$prefix 不是空目录，也不是代理的目录。请把 PREFIX 设为新目录。" \
            "$prefix holds other files. Set PREFIX to a new folder."
    fi
    : >"$prefix/.joining"
    free_kb=$(df -Pk "$prefix" | awk 'NR == 2 { print $4 }')
    [ "${free_kb:-0}" -ge 307200 ] 2>/dev/null || stop disk \
        "$prefix 所在磁盘可用空间不足 300 MB。请清出空间后再运行一次。" \
        "The disk of $prefix has less than 300 MB free. Free some space, then run this again."
}

fetch() { # fetch PATH FILE: into the file; 0 when the console answered 200
    if command -v curl >/dev/null 2>&1; then
        set -- "$1" "$2" -sS --noproxy '*' --connect-timeout 10 -m 900 -w '%{http_code}' -o "$2"
        [ -z "$PIN" ] || set -- "$@" -k --pinnedpubkey "$PIN"
        path=$1 file=$2
        shift 2
        status=$(curl "$@" "$CONSOLE/join/$TOKEN/$path") || status=000:$?
    elif any=$(command -v "${python:-python3}" 2>/dev/null); then
        file=$2
        status=$("$any" "$work/fetch.py" "$CONSOLE/join/$TOKEN/$1" "$2" "$PIN") || status=000
    elif [ -z "$PIN" ] && command -v wget >/dev/null 2>&1; then
        file=$2
        wget -q --no-proxy -O "$2" "$CONSOLE/join/$TOKEN/$1" && status=200 || status=000
    else
        stop python "这里没有能校验证书的 curl 或 python3。请安装其中之一。" \
            "There is neither curl nor python3 here to fetch the agent with. Install one of them."
    fi
    [ "$status" = 200 ] && return 0
    case $status in
    000:90) stop tls "应答方的密钥不是控制台的密钥，可能有代理或他人冒充。请在控制台重新生成命令。" \
        "What answers does not have the console's key: a proxy, or somebody else. Make a new command." ;;
    000:35 | 000:51 | 000:58 | 000:60) stop tls \
        "与控制台 $CONSOLE 的 TLS 没有成功，原因见上一行。请核对本机时钟（$(date)）与证书。" \
        "TLS with the console at $CONSOLE failed; the line above says why. Check this server's clock ($(date)) and the certificate." ;;
    000*) stop port "连不到控制台 $CONSOLE，原因见上一行。请检查地址、端口与防火墙。" \
        "The console at $CONSOLE cannot be reached; the line above says why. Check address, port and firewall." ;;
    *) head -c 600 "$file" | tr -d '\000-\010\013-\037\177' >&2; echo >&2; exit 1 ;;
    esac
}

check_digest() { # check_digest FILE SHA256
    [ "$(sha256sum <"$1" | cut -c1-64)" = "$2" ] || {
        rm -f "$1"
        stop digest "从控制台取得的文件与命令中的摘要不符，已丢弃。请在控制台重新生成命令。" \
            "What came from the console does not have the digest that the command names, and was thrown away. Make a new command."
    }
}

new_enough() { # new_enough PYTHON
    "$1" -c 'import ctypes, fcntl, ssl, sys, venv, zlib; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

agent_may_run() { # agent_may_run PYTHON: root's own pyenv or conda is no use to the agent's account
    [ "$(id -u)" = 0 ] || return 0
    account=${AGENT_USER:-ascend-console}
    # sys.executable, for what PATH names may be a shim that only root's shell understands
    "$1" -c 'import os, sys
name, uid, gid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.setgroups(os.getgrouplist(name, gid))
os.setgid(gid)
os.setuid(uid)
os.execv(sys.executable, [sys.executable, "-c", "import ctypes, ssl, venv"])' "$account" \
        "$(id -u "$account" 2>/dev/null || echo 65534)" "$(id -g "$account" 2>/dev/null || echo 65534)" >/dev/null 2>&1
}

take_python() { # take_python NAME: sets `python` where it is new enough and the agent may run it, else `private`
    path=$(command -v "$1" 2>/dev/null) && new_enough "$path" || return 1
    if agent_may_run "$path"; then
        python=$path
        return 0
    fi
    private=${private:-$path}
    return 1
}

find_python() { # sets `python`
    python=
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || stop python \
            "PYTHON=$PYTHON 不是可用的 Python 3.10 或更新版本。请改正或去掉 PYTHON。" \
            "PYTHON=$PYTHON is no working Python 3.10 or newer. Correct it, or leave it out."
        python=$PYTHON
        return
    fi
    home=${HOME:-/root}
    private=
    for one in python3.13 python3.12 python3.11 python3.10 python3 \
        /usr/local/bin/python3 /usr/local/bin/python3.1[0-9] /usr/local/python3*/bin/python3 \
        /opt/*conda*/bin/python3 /opt/miniforge*/bin/python3 /usr/local/*conda*/bin/python3 \
        "$home"/*conda*/bin/python3 "$home"/miniforge*/bin/python3; do
        take_python "$one" && return
    done
    # One that only root may run may stand in front of the system's own on root's PATH.
    [ -z "$private" ] || for one in /usr/bin/python3.1[0-9] /usr/bin/python3; do
        take_python "$one" && return
    done
    unpack_runtime
}

unpack_runtime() { # sets `python`
    machine=$(uname -m)
    case $machine in
    x86_64) offered=$RUNTIME_x86_64 ;;
    aarch64) offered=$RUNTIME_aarch64 ;;
    *) offered= ;;
    esac
    found=$(python3 -c 'import platform; print(platform.python_version())' 2>/dev/null || echo 0)
    [ -n "$offered" ] || [ -z "$private" ] || stop python \
        "$private 只有 root 能用，代理账号不能运行；这里没有别的 Python 3.10 或更新版本，控制台也没有 $machine 的运行时。请安装一个所有人可用的（例如在 /usr/local），或请管理员执行 manage.py runtimes add。" \
        "$private is for root only: the agent's account cannot run it. There is no other Python 3.10 or newer here, and the console has no runtime for $machine. Install one that everybody may use (say in /usr/local), or let an administrator run manage.py runtimes add."
    [ -n "$offered" ] || stop python \
        "这里没有 Python 3.10 或更新版本（python3: $found），控制台也没有 $machine 的运行时。请安装一个并先 export PYTHON=/路径，或请管理员执行 manage.py runtimes add。" \
        "There is no Python 3.10 or newer here (python3: $found), and the console has no runtime for $machine. Install one and “export PYTHON=/path/to/it” first, or let an administrator run manage.py runtimes add."
    digest=${offered%% *}
    folder=$prefix/runtime/$(echo "$digest" | cut -c1-16)
    python=$folder/${offered#* }
    new_enough "$python" && return
    say "从控制台取得 Python …" "Fetching a Python from the console …"
    fetch "runtime/$machine" "$work/runtime.tar.gz"
    check_digest "$work/runtime.tar.gz" "$digest"
    rm -rf "$folder"
    mkdir -p "$folder"
    tar -xzf "$work/runtime.tar.gz" -C "$folder" --no-same-owner || stop disk \
        "运行时无法解压到 $folder，原因见上一行。" "The runtime could not be unpacked into $folder; the line above says why."
    rm -f "$work/runtime.tar.gz"
    new_enough "$python" && return
    why=$("$python" -c 'import ctypes, fcntl, ssl, venv, zlib' 2>&1 | tail -n 1)
    stop python "控制台给出的 Python 在这里不能运行（$why）。请用 PYTHON= 指明另一个。" \
        "The Python from the console does not run here ($why). Name another with PYTHON=."
}

unpack_agent() { # sets `code`; an agent that runs from there meanwhile goes on
    code=$prefix/code/$(echo "$BUNDLE_SHA256" | cut -c1-16)
    fetch agent.tar.gz "$work/agent.tar.gz"
    check_digest "$work/agent.tar.gz" "$BUNDLE_SHA256"
    rm -rf "$code.new" "$code.old"
    mkdir -p "$code.new" && tar -xzf "$work/agent.tar.gz" -C "$code.new" --no-same-owner || stop disk \
        "代理无法解压到 $code，原因见上一行。" "The agent could not be unpacked into $code; the line above says why."
    [ ! -e "$code" ] || mv "$code" "$code.old"
    mv "$code.new" "$code"
    rm -rf "$code.old"
}

main() {
    cd / # not where the operator stands: Python would import what lies there
    elevate
    work=$(mktemp -d) || exit 1
    trap 'rm -rf "$work"' EXIT
    cat >"$work/fetch.py" <<'ASCEND_CONSOLE_FETCH'
#@fetch.py
ASCEND_CONSOLE_FETCH
    check_prefix
    find_python
    say "使用 $("$python" --version) ($python)，安装到 $prefix。" "Using $("$python" --version) ($python), installing into $prefix."
    unpack_agent
    JOIN_CONSOLE=$CONSOLE JOIN_TOKEN=$TOKEN JOIN_PIN=$PIN JOIN_SERVER_ID=$SERVER_ID JOIN_PREFIX=$prefix JOIN_CODE=$code \
        AGENT_USER=${AGENT_USER:-} NO_ROOT_HELPER=${NO_ROOT_HELPER:-$WITHOUT_ROOT} PYTHONPATH="$code/lib:$code/site" PYTHONDONTWRITEBYTECODE=1 \
        "$python" -m deployments.agent.join
}

main
