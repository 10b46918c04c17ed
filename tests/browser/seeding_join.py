"""Servers that join, one and many, for the browser."""


def joining(name="kp-71"):
    """A command for joining, made by the administrator."""
    from console.models import User
    from deployments.services import join, join_script

    enrolment = join.make(name, by=User.objects.get(username="ada"))
    enrolment.script_digest = join_script.digest(join_script.script(enrolment))
    enrolment.save(update_fields=["script_digest"])
    return enrolment.pk


def join_step(enrolment, step):
    """The host or its agent reaches a step: called, used, online, problem."""
    from django.utils import timezone

    from deployments.models import Enrolment, Server
    from deployments.services import join

    found = Enrolment.objects.select_related("server").get(pk=enrolment)
    if step == "called":
        join.called(found, "192.0.2.71")
    elif step == "used":
        join.config(found)
    elif step == "problem":
        join.trouble(found, "python", "python3: 3.7.9")
    elif step == "online":
        Server.objects.filter(pk=found.server_id).update(last_seen_at=timezone.now())


def join_many(phase="asking"):
    """A list of hosts whose keys were read, or one that has ended in every way there is."""
    from console.models import User
    from deployments.services import host_list, join_many

    ada = User.objects.get(username="ada")
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIXS1b/PsVH720dhV/8q7VXAfxLpCxj5BfpedjugIq/G"
    text = "".join(f"192.0.2.{n},root,,A{n},env=prod,kp-8{n}\n" for n in range(1, 7))
    many = join_many.create(host_list.read(text), by=ada)
    for row in many.rows.all():
        join_many.keyed(row, key)
    join_many.finish(many)
    if phase == "ended":
        join_many.confirm(many, {1, 2, 3, 4, 5}, by=ada)
        words = ["auth", "script", "no_sudo", "key_changed"]
        for row, code in zip(many.rows.all(), words, strict=False):
            join_many.change(row, began_at=many.created_at, log="Using Python 3.11\n" * 40)
            join_many.fail(row, {"code": code, "detail": "ops is not in the sudoers file. " * 4})
        join_many.finish(many, "cancelled")
    return many.pk


ALL = (joining, join_step, join_many)
