"""What the words of the vendor's installers mean for an operator, where they fail."""

from deployments.steps import Text

OCCUPIED = (
    r"davinci nodes are occupied",
    Text(
        "还有进程占用 NPU，安装程序因此没有动手。请停止这些进程与 npu-exporter，再重试。",
        "Processes hold the NPUs, so the installer did nothing. Stop them, npu-exporter too, then try again.",
    ),
)
CHECK_MEANS = (
    (
        r"error in (sha256|md5|crc)?\s*checksums?|checksum.{0,40}(differ|mismatch)|is different from",
        Text(
            "安装包已损坏或不是原来的文件（摘要不符），没有安装任何东西。请重新取得它，放回原处，再重试。",
            "The package is damaged or another one (its digest differs); nothing was installed. Get it again, put it "
            "in its place, then try again.",
        ),
    ),
)
DRIVER_MEANS = (
    (
        r"dkms.{0,30}(failed|error)|driver_ko_install failed",
        Text(
            "驱动的内核模块没有编译成功，驱动只装了一半，NPU 目前不可用。请查看服务器上的 "
            "/var/log/ascend_seclog/ascend_install.log，装好与内核一致的 kernel-devel、dkms、gcc，再安装一次；"
            "计划会重装驱动。",
            "The driver's kernel modules were not built: the driver is half installed, and no NPU can be used now. See "
            "/var/log/ascend_seclog/ascend_install.log on the server, install kernel-devel of the running kernel, dkms "
            "and gcc, then install again: the plan installs the driver anew.",
        ),
    ),
    (
        r"list of missing tools",
        Text(
            "安装程序缺少的命令写在日志里，没有安装任何东西。请以 root 安装 pciutils 与 net-tools，再重试。",
            "The log names the commands that the installer lacks; nothing was installed. As root install pciutils and "
            "net-tools, then try again.",
        ),
    ),
)
CHIP_MEANS = (
    (
        r"(is|are) (made )?for another chip|does not (match|support|fit) (the|this) (chip|device|soc)",
        Text(
            "这个安装包属于另一种芯片，没有安装任何东西。请按这台服务器的芯片取得安装包，再重试。",
            "The package is for another chip; nothing was installed. Get the one for the chip of this server, then try "
            "again.",
        ),
    ),
)
FULL_MEANS = (
    (
        r"no space left on device|disk quota exceeded",
        Text(
            "磁盘空间不足，没有装完；在用的软件栈不受影响。请清出空间，再重试。",
            "The disk is full, so it was not installed whole; the stack in use is as it was. Free some space, then try "
            "again.",
        ),
    ),
)
HOST_MEANS = {"driver": (OCCUPIED, *DRIVER_MEANS, *CHIP_MEANS), "firmware": (OCCUPIED, *CHIP_MEANS)}
CANN_MEANS = (*CHIP_MEANS, *FULL_MEANS)
