"""The commands that make users and tokens."""

import re

import pytest
from django.core.management import CommandError, call_command

from console.models import ApiToken, User

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator():
    return User.objects.create_user("wang", password="only-for-this-test", role="operator")


def test_a_token_is_printed_once_and_kept_as_its_digest(operator, capsys):
    call_command("token", "create", "wang", "--role", "operator", "--days", "30", "--name", "tickets")
    text = capsys.readouterr().out.strip()
    token = ApiToken.objects.get()
    assert text.startswith("ac_")
    assert token.digest == ApiToken.digest_of(text)
    assert (token.role, token.name) == ("operator", "tickets")
    assert 29 <= (token.expires_at - token.created_at).days <= 30


def test_without_a_role_the_token_has_its_users(operator, capsys):
    call_command("token", "create", "wang")
    assert ApiToken.objects.get().role == "operator"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "nobody"], r"There is no user 'nobody' \(known: wang\)"),
        (["create", "wang", "--role", "administrator"], "wang is operator"),
        (["create", "wang", "--days", "0"], "not from 1 to 3650"),
        (["create", "wang", "--name", "x" * 101], "longer than 100"),
        (["revoke", "99"], "There is no token 99"),
    ],
)
def test_a_wrong_call_is_answered_in_a_sentence(operator, arguments, said):
    with pytest.raises(CommandError, match=said):
        call_command("token", *arguments)
    assert not ApiToken.objects.exists()


def test_a_revoked_token_is_gone_and_the_list_shows_no_secret(operator, capsys):
    token, text = ApiToken.make(operator, "viewer", name="old")
    call_command("token", "list")
    listed = capsys.readouterr().out
    assert f"{token.pk}\twang\tviewer\told\tuntil revoked\tnever used" in listed
    assert text not in listed
    call_command("token", "revoke", str(token.pk))
    assert not ApiToken.objects.exists()


def test_a_user_gets_a_random_password_that_works(client, capsys):
    call_command("user", "create", "zhao", "--role", "viewer")
    printed = capsys.readouterr()
    password = printed.out.strip()  # alone, for a script; what it is goes beside it
    assert printed.err == "Password of zhao (viewer), shown once:\n"
    user = User.objects.get(username="zhao")
    assert user.role == "viewer"
    assert user.check_password(password)
    call_command("user", "password", "zhao")
    assert not User.objects.get(username="zhao").check_password(password)


@pytest.mark.parametrize("name", ["wang", "a b", "x" * 151, ""])
def test_a_user_name_that_cannot_be_is_refused(operator, name):
    with pytest.raises(CommandError, match=re.compile("already|no user name")):
        call_command("user", "create", name)
    assert User.objects.count() == 1
