"""What pip's own words mean for an operator, where it fails. Patterns as pip 21 to 26 print them."""

from deployments.steps import Text

VENV_MEANS = (
    (
        r"ensurepip is not|no module named '?(venv|ensurepip)",
        Text(
            "这个 Python 缺少 venv 模块。Debian 与 Ubuntu 上请以 root 运行 apt-get install python3-venv，"
            "或选另一个 Python。",
            "This Python lacks its venv module. On Debian and Ubuntu run as root: apt-get install python3-venv, or "
            "choose another Python.",
        ),
    ),
)
MEANS = (
    (
        r"no space left on device|disk quota exceeded",
        Text(
            "磁盘空间不足，没有装完；在用的软件栈不受影响。请清出空间，再重试。",
            "The disk is full, so it was not installed whole; the stack in use is as it was. Free some space, then try "
            "again.",
        ),
    ),
    (
        r"no module named '?deployments",
        Text(
            "这台服务器的代理太旧，不认识这一步。请先升级代理，再重试。",
            "This server's agent is too old for this step. Upgrade the agent, then try again.",
        ),
    ),
    (
        r"\b(401|403) (client )?error|http error (401|403)|credentials not correct",
        Text(
            "软件包索引拒绝登录（用户或密码不对，或没有给出）。请在控制台改正 PACKAGE_PASSWORDS 并重启，再重试。",
            "The index of packages does not let us in: user or password are wrong, or none were given. Mend "
            "PACKAGE_PASSWORDS on the console, start it anew, then try again.",
        ),
    ),
    (
        r"do not match the hashes|hash mismatch",
        Text(
            "下载的文件与索引给出的摘要不符：下载中断，或中间的代理、镜像改动了它。请检查它们，再重试。",
            "What was downloaded does not have the digest that the index names: it broke off, or a proxy or mirror in "
            "between has changed it. Look at them, then try again.",
        ),
    ),
    (
        r"readtimeouterror|read timed out|connecttimeouterror|connection to \S+ timed out",
        Text(
            "软件包索引没有回答（超时）。请检查本机到索引的网络与 http_proxy，或改用离线包，再重试。",
            "The index of packages does not answer (timed out). Look at the network to it and at http_proxy, or use a "
            "bundle, then try again.",
        ),
    ),
    (
        r"certificate_verify_failed|sslerror",
        Text(
            "不信任软件包索引的证书。请在控制台以 PACKAGE_INDEX_CA 给出其 CA 并重启，或改用离线包，再重试。",
            "The certificate of the index is not trusted here. Name its authority with PACKAGE_INDEX_CA on the console "
            "and start that anew, or use a bundle, then try again.",
        ),
    ),
    (
        r"newconnectionerror|connection refused|name or service not known|temporary failure in name resolution|"
        r"failed to establish a new connection|network is unreachable|proxyerror",
        Text(
            "连不到软件包索引。请检查本机到索引的网络与 http_proxy，或改用离线包，再重试。",
            "The index of packages cannot be reached. Look at the network to it and at http_proxy, or use a bundle, "
            "then try again.",
        ),
    ),
    (
        r"incompleteread|connection broken|remote end closed|connection aborted|connection reset|download failed "
        r"because not enough bytes",
        Text(
            "下载中断：索引或中间的代理断开了连接。请检查它们，再重试。",
            "A download broke off: the index or a proxy in between closed the connection. Look at them, then try "
            "again.",
        ),
    ),
    (
        r"no matching distribution found|could not find a version that satisfies",
        Text(
            "索引或离线包里没有适合本机（Python、架构、glibc）的包，日志写明是哪一个。请换索引或重做离线包。",
            "The index or bundle has no package that fits this server (Python, architecture, glibc); the log names it. "
            "Take another index, or make the bundle anew.",
        ),
    ),
    (
        r"resolutionimpossible|conflicting dependencies",
        Text(
            "这些版本互相冲突，pip 找不到解。请报告此软件栈；离线包可能混入了别的版本。",
            "These versions contradict each other. Report this stack; a bundle may hold other versions than it should.",
        ),
    ),
)
