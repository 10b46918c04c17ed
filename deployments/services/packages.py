"""Digests of packages of the vendor, by which servers know the right file, and plans that carry them."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit
from console.errors import Invalid, NotAllowed, NotFound
from console.models import User
from deployments.models import VendorPackage
from deployments.stacks import actions, plan
from deployments.stacks.draft import PlannedStep
from deployments.steps import Text

MOST_SIZE = 1 << 46


def check_may(by: User) -> None:
    """Raises NotAllowed: a digest decides what root runs."""
    if not by.may("administrator"):
        raise NotAllowed(_("Only an administrator may say which packages are the right ones."), _("Ask one to do it."))


def put(name: str, sha256: str, *, by: User, size: int | None = None, source: str = "") -> VendorPackage:
    """Note, or correct, the digest of a package. Raises NotAllowed, Invalid."""
    check_may(by)
    name, sha256 = name.strip(), sha256.strip().lower()
    if not re.fullmatch(actions.FILE, name, re.ASCII):
        raise Invalid(
            _("“%(name)s” is no file name of a package of the vendor.") % {"name": name[:200]},
            _("Give the name alone, such as Ascend-hdk-910b-npu-driver_25.5.2_linux-aarch64.run."),
            code="bad_package",
        )
    if not re.fullmatch(actions.DIGEST, sha256) or sha256 == actions.TO_BE_KNOWN:
        raise Invalid(
            _("That is no SHA-256."), _("Give its 64 hexadecimal digits, as sha256sum prints them."), code="bad_digest"
        )
    if size is not None and not 0 < size < MOST_SIZE:
        raise Invalid(_("That is no size of a file."), _("Give bytes, or leave it out."), code="bad_size")
    values = {"sha256": sha256, "size": size, "source": source.strip()[:300], "added_by": by}
    with transaction.atomic():
        before = VendorPackage.objects.select_for_update().filter(name=name).first()
        row, _made = VendorPackage.objects.update_or_create(name=name, defaults={**values, "added_at": timezone.now()})
        audit.record(by, "package.noted", row, name=name, before=before and before.sha256, after=sha256)
    return row


def remove(name: str, *, by: User) -> None:
    """Forget a digest; jobs that are queued keep theirs. Raises NotAllowed, NotFound."""
    check_may(by)
    with transaction.atomic():
        row = VendorPackage.objects.select_for_update().filter(name=name[:200]).first()
        if row is None:
            raise NotFound(
                _("No digest is known of “%(name)s”.") % {"name": name[:200]},
                _("Choose one of the list."),
                code="unknown_package",
            )
        audit.record(by, "package.forgotten", row, name=row.name, before=row.sha256)
        row.delete()


def digests(names: Iterable[str]) -> dict[str, str]:
    """{file name: SHA-256} of those that are known."""
    return dict(VendorPackage.objects.filter(name__in=set(names)).values_list("name", "sha256"))


def as_json(row: VendorPackage) -> dict[str, Any]:
    return {
        "name": row.name,
        "sha256": row.sha256,
        "size": row.size,
        "source": row.source,
        "added_by": row.added_by.username if row.added_by else None,
        "added_at": row.added_at.isoformat(timespec="seconds"),
    }


# ---------- plans ----------


def every_digest() -> dict[str, str]:
    """{file name: SHA-256} of all. One query."""
    return dict(VendorPackage.objects.values_list("name", "sha256"))


def sealed(made: plan.Plan, known: Mapping[str, str] | None = None) -> plan.Plan:
    """The plan with the digest of each package that root runs; one that is not known is a gap. A query at most, and
    none where the digests are given."""
    wanted = [step.action[1] for step in made.to_run if _takes_package(step)]
    if not wanted:
        return made
    known = digests(wanted) if known is None else known
    gaps = [_gap(name) for name in dict.fromkeys(wanted) if name not in known and not _is_open(name)]
    steps = tuple(_sealed(step, known) for step in made.steps)
    return dataclasses.replace(made, steps=steps, gaps=(*made.gaps, *gaps))


def _takes_package(step: PlannedStep) -> bool:
    return len(step.action) == 3 and step.action[0].startswith("package-")


def _sealed(step: PlannedStep, known: Mapping[str, str]) -> PlannedStep:
    if not _takes_package(step) or step.action[1] not in known:
        return step
    return dataclasses.replace(step, action=(*step.action[:2], known[step.action[1]]))


def _is_open(name: str) -> bool:
    """Whether its version is still to be named, which is a gap of its own."""
    return "_VERSION" in name


def _gap(name: str) -> Text:
    return Text(
        f"没有登记 {name} 的 SHA-256：请管理员在“安装包”页面登记（sha256sum 打印的值），root 只运行与之相符的文件。",
        f"No SHA-256 is known of {name}: let an administrator note it on the page “Packages”, as sha256sum prints it. "
        "Root runs no other file.",
    )
