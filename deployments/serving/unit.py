"""The unit of systemd that keeps an engine where the agent has a way to root.

The root helper writes it from fixed parts (`agent/root_helper.py` has the same text, and a test holds the two
together): what runs by it runs as the agent's account. Before the engine starts, `await_npus` waits until npu-smi
lists its NPUs; the keeper runs with `--once` and ends when the engine ends, so that systemd starts both again.
More than five ends within ten minutes, and systemd leaves it.
"""

import re

# What the root helper takes as a folder: no blank, no sign that a unit file reads, and no way up.
FOLDER = r"/|(?!.*/\.\.?(?:/|$))(?:/[A-Za-z0-9._+@=,-]{1,255}){1,40}"
TEXT = """\
[Unit]
Description=Ascend Console engine {name}
Wants=network-online.target
After=network-online.target
RequiresMountsFor={model} {state}
StartLimitIntervalSec=600
StartLimitBurst=5

[Service]
User={account}
Environment="PYTHONPATH={prefix}/current/lib"
Environment="PYTHONUNBUFFERED=1"
Environment="HOME={prefix}"
WorkingDirectory={state}/engines/{name}
ExecStartPre={python} -m deployments.agent.serving.await_npus {state}/engines/{name}
ExecStart={python} -m deployments.agent.engines.keeper {state}/engines/{name} --config {prefix}/etc/config.json --once
TimeoutStartSec=660
Restart=on-failure
RestartSec=10
KillMode=mixed
TimeoutStopSec=90
SendSIGHUP=no
OOMPolicy=continue
UMask=0077
LimitNOFILE=1048576
LimitMEMLOCK=infinity
TasksMax=infinity

[Install]
WantedBy=multi-user.target
"""


def name(engine: str) -> str:
    """Of the unit of `e12`."""
    return f"ascend-console-{engine}.service"


def mounted(model: str) -> str:
    """The model's folder, or the nearest above it that can be named in a unit: it is mounted together with it."""
    while not re.fullmatch(FOLDER, model):
        model = model.rpartition("/")[0] or "/"
    return model


def text(engine: str, model: str, *, prefix: str, account: str) -> str:
    """What stands in the unit's file; `model` is the folder that must be mounted before."""
    return TEXT.format(
        name=engine, model=model, prefix=prefix, state=f"{prefix}/state", python=f"{prefix}/venv/bin/python",
        account=account,
    )  # fmt: skip
