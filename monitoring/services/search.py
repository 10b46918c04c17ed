"""What the command palette finds: pages, servers, NPUs, deployments, models, jobs. A fixed number of small queries."""

from typing import Any

from django.db.models import F, Q
from django.urls import reverse
from django.utils.translation import gettext

from deployments.models import Artifact, Deployment, Job, JobState, Npu, Server
from deployments.templatetags.jobs import kind_title

AT_MOST = 8


def find(typed: str) -> list[dict[str, str]]:
    """[{title, note, icon, url}], pages first where their name matches; with nothing typed, pages and newest jobs."""
    word = typed.strip()
    npus = _npus(word) if len(word) > 2 else []
    return [*_pages(word), *_servers(word), *npus, *_deployments(word), *_models(word), *_jobs(word)]


def _entry(title: str, note: str, icon: str, url: str) -> dict[str, str]:
    return {"title": title, "note": note, "icon": icon, "url": url}


# Pages by both their names and by pinyin, since the keyboard may be in either mode.
PAGES = (
    ("monitoring:fleet", "fleet", "fleet 机群 jiqun"),
    ("monitoring:server-list", "server", "servers 服务器 fuwuqi"),
    ("deployments:deployment-list", "deployment", "deployments replicas 部署 副本 bushu fuben"),
    ("deployments:job-list", "job", "jobs 作业 zuoye"),
    ("deployments:server-agents", "link", "agents versions 代理版本 dailibanben"),
    ("deployments:batch-list", "table", "batches 批次 pici"),
    ("deployments:campaign-list", "report", "campaigns upgrades 发布活动 升级 fabuhuodong shengji"),
    ("deployments:queue-list", "queue", "queues 队列 duilie"),
    ("deployments:support-list", "copy", "support bundles 支持包 zhichibao"),
    ("monitoring:alert-list", "alert", "alerts 告警 gaojing"),
    ("deployments:model-list", "model", "models artifacts 模型 moxing"),
    ("deployments:model-catalogue", "columns", "model catalogue 模型目录 moxingmulu"),
    ("deployments:serving-plan", "settings", "plan fit serving 规划 部署规划 guihua"),
    ("deployments:hold-list", "lock", "holds reserved 保留 占用 baoliu zhanyong"),
    ("deployments:engine-list", "more", "engines external vllm mindie 外部引擎 waibuyinqing"),
    ("deployments:gateway-list", "right", "gateways api 网关 wangguan"),
    ("deployments:gateway-keys", "download", "gateway keys usage 密钥 用量 miyao yongliang"),
    ("monitoring:stack-list", "stack", "stacks 软件栈 ruanjianzhan"),
)


def _pages(word: str) -> list[dict[str, str]]:
    titles = {
        "fleet": gettext("Fleet"), "server": gettext("Servers"), "job": gettext("Jobs"), "table": gettext("Batches"),
        "alert": gettext("Alerts"), "queue": gettext("Queues"), "stack": gettext("Stacks"), "link": gettext("Agents"),
        "report": gettext("Campaigns"), "model": gettext("Models"), "columns": gettext("Model catalogue"),
        "deployment": gettext("Deployments"), "settings": gettext("Plan for serving"),
        "lock": gettext("NPU holds"), "more": gettext("Engines of others"),
        "right": gettext("Gateways"), "download": gettext("Keys of gateways"),
        "copy": gettext("Support bundles"),
    }  # fmt: skip
    return [_entry(titles[icon], "", icon, reverse(url)) for url, icon, names in PAGES if word.lower() in names]


def _servers(word: str) -> list[dict[str, str]]:
    if not word:
        return []
    wanted = Q(name__icontains=word) | Q(hostname__icontains=word) | Q(rack__iexact=word)
    wanted |= Q(display_name__icontains=word)
    # Those that are gone come last.
    rows = Server.objects.filter(wanted).order_by(F("decommissioned_at").asc(nulls_first=True), "simulated", "name")
    rows = rows.defer("facts", "notes")[:AT_MOST]
    return [
        _entry(row.name, _server_note(row), "server", reverse("monitoring:server-detail", args=[row.name]))
        for row in rows
    ]


def _server_note(server: Server) -> str:
    gone = gettext("decommissioned") if server.is_gone else ""
    return _words(server.family, server.site, server.rack, gone, _mark(server))


def _words(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def _mark(server: Server) -> str:
    return gettext("simulated") if server.simulated else ""


def _npus(word: str) -> list[dict[str, str]]:
    rows = Npu.objects.filter(bus_id__icontains=word).select_related("server")[:AT_MOST]
    return [
        _entry(npu.bus_id or "", _words(npu.server.name, f"NPU {npu.device_index}", _mark(npu.server)), "fleet",
               reverse("monitoring:server-detail", args=[npu.server.name]) + f"#npu-{npu.device_index}")
        for npu in rows
    ]  # fmt: skip


def _deployments(word: str) -> list[dict[str, str]]:
    if not word:
        return []
    wanted = Q(name__icontains=word) | Q(title__icontains=word)
    rows = Deployment.objects.present().filter(wanted).order_by("simulated", "name")[:AT_MOST]
    return [
        _entry(row.name, _words(gettext("Deployment"), row.title, gettext("simulated") if row.simulated else ""),
               "deployment", reverse("deployments:deployment-detail", args=[row.name]))
        for row in rows
    ]  # fmt: skip


def _models(word: str) -> list[dict[str, str]]:
    if not word:
        return []
    rows = Artifact.objects.filter(name__icontains=word).order_by("simulated", "name")[:AT_MOST]
    return [
        _entry(row.name, _words(gettext("Model"), gettext("simulated") if row.simulated else ""), "model",
               reverse("deployments:model-detail", args=[row.pk]))
        for row in rows
    ]  # fmt: skip


def _jobs(word: str) -> list[dict[str, str]]:
    number = word.lstrip("#")
    wanted: Any = Q()
    if number.isascii() and number.isdigit() and len(number) < 12:
        wanted = Q(pk=int(number)) | Q(ticket__icontains=word)
    elif word:
        wanted = Q(ticket__icontains=word) | Q(kind__iexact=word)
    rows = Job.objects.filter(wanted).select_related("server")[: AT_MOST if word else 3]
    return [
        _entry(f"#{job.pk} {kind_title(job.kind)} · {job.server.name}", _job_note(job), "job",
               reverse("deployments:job-detail", args=[job.pk]))
        for job in rows
    ]  # fmt: skip


def _job_note(job: Job) -> str:
    return _words(str(JobState(job.state).label), job.ticket, _mark(job.server))
