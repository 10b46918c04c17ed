"""What a campaign adds to its batch: rings wait for those before them, and what was approved is what runs.

The row of a campaign is locked after that of its batch. Everything is decided from rows, so that a console that was
restarted goes on where it was.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from console import alerts, audit
from console.errors import ConsoleError
from deployments.kinds import install
from deployments.models import (
    Batch,
    BatchState,
    Campaign,
    CampaignPlan,
    CampaignServer,
    CampaignState,
    Job,
    JobState,
    Server,
)
from deployments.services import (
    batch_gates,
    batches,
    campaign_plan,
    campaign_soak,
    filling,
    installs,
    jobs,
    root_access,
    speaking,
    stacks,
)
from deployments.steps import Text

STOPPED, HELD, UNLIKE = "campaign-stopped", "campaign-held", "campaign-mismatch"
GONE = Text("轮到它之前服务器已退役", "The server was decommissioned before its turn")


def lock(batch: Batch) -> Campaign | None:
    """The campaign of a batch whose row the caller has locked; None for a batch that is none."""
    rows = Campaign.objects.select_for_update(no_key=True, of=("self",)).select_related("requester", "decided_by")
    return rows.filter(batch=batch).first()


class CampaignGate(batch_gates.Gate):
    """The gate of the kind `install`; batches of it that are no campaign pass."""

    keeps_waves = True

    def look(self, batch: Batch) -> None:
        campaign = lock(batch)
        if campaign is not None and campaign_soak.settle(campaign, campaign_soak.now_is()):
            _tell_soon(batch)

    def ready(self, batch: Batch, wave: int | None) -> bool:
        campaign = lock(batch)
        if campaign is None:
            return True
        if wave is None:
            return campaign_soak.may_end(campaign)
        if words := _stack_is_gone(campaign):
            batch.state, batch.reason = BatchState.STOPPED, list(words)
            return False
        if words := _approval_is_gone(campaign):
            _ask_again(batch, campaign, words)
            return False
        return _rings_before(batch, campaign, wave)

    def admit(self, batch: Batch, wave: Sequence[Job], servers: Mapping[int, Server]) -> list[Job]:
        campaign = lock(batch)
        if campaign is None:
            return list(wave)
        _tell_soon(batch)
        return _admitted(campaign, wave, servers)

    def forgive(self, batch: Batch) -> None:
        campaign = lock(batch)
        if campaign is None:
            return
        now = campaign_soak.now_is()
        for ring, rows in campaign_soak.members(campaign).items():
            broken = {row.server_id for row in rows if row.job and row.job.state in campaign_soak.BROKEN}
            judged = campaign_soak.judge(campaign, ring, rows, now)
            _note(campaign, ring, forgiven=sorted(campaign_soak.forgiven(campaign, ring) | broken | set(judged.who)))
        campaign.save(update_fields=["progress"])

    def told(self, batch: Batch) -> None:
        campaign = Campaign.objects.filter(batch=batch).first()
        if campaign is not None:
            _alert(batch, campaign)


def _note(campaign: Campaign, ring: int, **values: Any) -> None:
    kept = {**campaign.progress.get(str(ring), {}), **values}
    campaign.progress = {**campaign.progress, str(ring): {name: value for name, value in kept.items() if value}}


def _tell_soon(batch: Batch) -> None:
    transaction.on_commit(lambda: batches.tell(batch))


# ---------- may the wave begin? ----------


def _stack_is_gone(campaign: Campaign) -> Text | None:
    stack = stacks.catalogue().stacks.get(campaign.stack)
    if stack is None:
        return Text(f"目录中已没有软件栈 {campaign.stack}", f"The stack {campaign.stack} is no longer in the catalogue")
    if stack.state == "withdrawn":
        return Text(f"软件栈 {campaign.stack} 已撤回", f"The stack {campaign.stack} was withdrawn")
    return None


def _approval_is_gone(campaign: Campaign) -> Text | None:
    """An approval counts as long as the one who gave it may give it."""
    by = campaign.decided_by
    if campaign.state == CampaignState.WAITING:
        return Text("等待审批", "Waits for approval")
    if by is None:
        return Text("批准人的账号已不存在，需要另一人批准", "Who approved it is gone: another has to approve it")
    if not by.may("operator"):
        words = f"{by.username} 已无权批准，需要另一人批准"
        return Text(words, f"{by.username} may no longer approve: another has to approve it")
    return None


def _ask_again(batch: Batch, campaign: Campaign, words: Text) -> None:
    batch.state, batch.reason = BatchState.PAUSED, list(words)
    if campaign.state != CampaignState.WAITING:
        campaign.state = CampaignState.WAITING
        campaign.save(update_fields=["state"])
        audit.record(None, "campaign.asks_again", campaign, why=words.en)


def _rings_before(batch: Batch, campaign: Campaign, wave: int) -> bool:
    """Whether every ring before that of the wave has passed; what is in trouble stops the batch."""
    rings = campaign_soak.members(campaign)
    turn = [n for n, rows in rings.items() if any(_is_draft_of(row, wave) for row in rows)]
    before = sorted(n for n in rings if turn and n < min(turn) and not campaign_soak.passed(campaign, n))
    for ring in before:
        judged = campaign_soak.judge(campaign, ring, rings[ring], campaign_soak.now_is())
        if judged.why:
            batch.state, batch.reason = BatchState.STOPPED, list(judged.why)
        if judged.state != "passed":
            return False
        _note(campaign, ring, passed=timezone.now().isoformat(timespec="seconds"))
        campaign.save(update_fields=["progress"])
        audit.record(None, "campaign.ring_passed", campaign, ring=ring)
        _tell_soon(batch)
    return True


def _is_draft_of(row: CampaignServer, wave: int) -> bool:
    return row.job is not None and row.job.state == JobState.DRAFT and row.job.wave == wave


# ---------- who goes ----------


def _admitted(campaign: Campaign, wave: Sequence[Job], servers: Mapping[int, Server]) -> list[Job]:
    rows = {row.job_id: row for row in campaign.members.filter(job__in=wave).select_related("plan")}
    facts = dict(Server.objects.filter(pk__in=list(servers)).values_list("pk", "facts"))
    goes: list[Job] = []
    for job in wave:
        server, row = servers[job.server_id], rows.get(job.pk)
        server.facts = facts[server.pk]
        if row is None or server.is_gone or server.leaving_at:
            jobs.end_here(job, None, JobState.CANCELLED, GONE)
        elif server.is_offline:  # it fails
            goes.append(job)
        elif job.params.get("plan"):  # which was approved, and runs again
            filling.choose_again(server, job)
            goes.append(job)
        elif held := _fill(campaign, job, server, row):
            _hold_back(job, row, held)
        else:
            row.held = []
            goes.append(job)
        if row is not None and row.ring is not None:
            _begun(campaign, row, server)
    campaign.save(update_fields=["progress"])
    Job.objects.bulk_update(goes, ["params", "locks"], batch_size=100)
    CampaignServer.objects.bulk_update(
        rows.values(), ["before", "after", "begun_at", "settled_at", "held", "plan"], batch_size=100
    )
    return goes


def _begun(campaign: Campaign, row: CampaignServer, server: Server) -> None:
    """What it had before, at its first turn; a ring that begins again has to pass again."""
    assert row.ring is not None
    row.before = row.before or campaign_plan.versions(stacks.row_of(server).has)
    row.after, row.settled_at, row.begun_at = {}, None, campaign_soak.now_is()
    spared = campaign_soak.forgiven(campaign, row.ring) - {row.server_id}
    _note(campaign, row.ring, passed="", forgiven=sorted(spared))


def _fill(campaign: Campaign, job: Job, server: Server, row: CampaignServer) -> Text | None:
    """Freeze the plan into the job; why the server is held back where that is not what was approved."""
    made: dict[str, Any] = {}

    def refuse() -> ConsoleError | None:
        made.update(filling.FILLERS[campaign_plan.KIND](server, dict(campaign.params)))
        params = {**campaign.params, **made}
        read = jobs.checked_params(install, params)
        root_access.check(server, install, read)
        speaking.check_speaks(server, campaign_plan.KIND)
        locks = list(install.locks(read))
        jobs.check_cordons(server, locks)
        job.params, job.locks = params, locks
        return None

    before = (job.params, job.locks)
    if because := campaign_plan.in_both(refuse):
        row.plan = None
    elif installs.digest_of(made["plan"]) == row.approved:
        return None
    else:
        because, row.plan = changed(campaign, server, row.plan)
    job.params, job.locks = before
    return because


def changed(campaign: Campaign, server: Server, approved: CampaignPlan | None) -> tuple[Text, CampaignPlan | None]:
    """Words about the plan that a server has now, and that plan; None where there is no way."""
    line = campaign_plan.Planner(stacks.find(campaign.stack), campaign.params).lines([server])[0]
    if line.because:
        return line.because, None
    plan = plan_row(campaign, line)
    before, after = len(approved.steps) if approved else 0, len(plan.steps)
    if approved and approved.steps == plan.steps:
        return Text(
            "计划与批准的不同：步骤相同，但命令或依据不同。",
            "Its plan is another one than was approved: the same steps, but other commands or evidence.",
        ), plan
    return Text(
        f"计划与批准的不同：批准 {before} 步，现在 {after} 步。",
        f"Its plan is another one than was approved: {before} steps were approved, now there are {after}.",
    ), plan


def plan_row(campaign: Campaign, line: campaign_plan.Line) -> CampaignPlan:
    """The row of this plan; several servers share it."""
    assert line.made is not None
    return CampaignPlan.objects.get_or_create(
        campaign=campaign, digest=line.digest, defaults=campaign_plan.told(line.made)
    )[0]


def _hold_back(job: Job, row: CampaignServer, words: Text) -> None:
    row.held = list(words)
    job.state, job.reason = JobState.WAITING_APPROVAL, list(words)
    job.save(update_fields=["state", "reason"])


# ---------- alerts ----------


def _alert(batch: Batch, campaign: Campaign) -> None:
    subject, link = f"campaign:{campaign.pk}", f"/campaigns/{campaign.pk}/"
    name, why = f"#{campaign.pk} {campaign.stack}", Text(*(batch.reason or ("", "")))
    open_ = batch.jobs.filter(state__in=(JobState.DRAFT, JobState.WAITING_APPROVAL))
    states = set(open_.values_list("state", flat=True))
    _set(
        STOPPED, subject, batch.state == BatchState.STOPPED and bool(states), link,
        Text(f"发布活动 {name} 已自行停止：{why.zh}", f"Campaign {name} has stopped: {why.en}"),
        Text("看清原因后继续、重试或停止。", "Look why, then go on, retry or stop it."),
    )  # fmt: skip
    _set(
        HELD, subject, JobState.WAITING_APPROVAL in states, link,
        Text(f"发布活动 {name} 有服务器被扣下", f"Servers of campaign {name} are held back"),
        Text("批准它们的新计划，或不再包括它们。", "Approve their new plans, or leave them out."),
    )  # fmt: skip
    ended = batch.state in (BatchState.SUCCEEDED, BatchState.FAILED)
    unlike = ended and campaign.members.filter(job__state=JobState.SUCCEEDED, after__matches=False).exists()
    _set(
        UNLIKE, subject, unlike, link,
        Text(f"发布活动 {name} 结束后有服务器不符合该软件栈", f"After campaign {name} servers do not match the stack"),
        Text("在看板上找出它们，打开其计划。", "Find them on its board and open their plans."),
    )  # fmt: skip


def _set(name: str, subject: str, is_on: bool, link: str, what: Text, do: Text) -> None:
    if is_on:
        alerts.fire(name, subject, what=what, do=do, link=link)
    else:
        alerts.resolve(name, subject)
