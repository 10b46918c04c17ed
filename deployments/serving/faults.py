"""Faults that an operator has a simulated server act out while an engine starts or stops."""

from deployments.steps import Text

OF_START = {
    "out_of_memory": Text("显存不足", "The memory of the NPUs does not suffice"),
    "unknown_flag": Text("引擎不认识一个参数", "The engine does not know a flag"),
    "crash_loop": Text("引擎反复退出", "The engine ends again and again"),
    "slow": Text("加载很慢，超过时限", "It loads slowly, past the time limit"),
    "other_files": Text("路径相同，文件不同", "The same path holds other files"),
    "port_taken": Text("端口被占用", "The port is taken"),
}
OF_STOP = {"memory_stays": Text("显存没有释放", "The memory is not given back")}
ALL = {**OF_START, **OF_STOP}
STARTING, STOPPING = ("", *OF_START), ("", *OF_STOP)
