"""What a look at a download reports, as stored."""


def row(key, title, found, verdict="ok", wanted=None, remedy=None):
    return {"key": f"download.{key}", "title": title, "verdict": verdict, "found": found, "wanted": wanted,
            "remedy": remedy, "job": None, "line": 1}  # fmt: skip


REPORT = [
    row("source", ["来源", "Source"], "https://huggingface.co/Qwen/Qwen2.5-7B-Instruct"),
    row("revision", ["版本", "Revision"], "5e" * 20),
    row("files", ["文件数", "Files"], "14"),
    row("bytes", ["总大小", "Size of all"], "15.2 GB (15242731136 B)"),
    row("checked", ["带摘要的文件", "Files with a digest"], "14", wanted="14"),
    row("left.pickle", ["不取的文件", "Files that are left out"], "original/consolidated.00.pth", "warning",
        remedy=["pickle 文件，加载会执行代码", "pickles, which run code when they are loaded"]),
    row("calls.a", ["会访问的地址", "Addresses it calls"], "https://huggingface.co"),
    row("target", ["写入目录", "Written to"], "/opt/ascend-console/models/Qwen2.5-7B-Instruct"),
    row("room", ["可用空间", "Free room"], "2.1 TB (2100000000000 B)", wanted="15.2 GB (15242731136 B)"),
]  # fmt: skip
