"""What tests of pages that bring models in share: servers, somebody who operates them, a folder for uploads."""

import pytest
from django.utils import timezone

from console.models import User
from deployments.models import Server

FORM = {"server": "kp-01", "source": "huggingface", "model": "Qwen/Qwen2.5-7B-Instruct", "at_once": "4"}


@pytest.fixture(autouse=True)
def own_var(settings, tmp_path):
    settings.VAR_DIR = tmp_path


@pytest.fixture
def server(db):
    facts = {"models_root": "/data/models", "addresses": [
        {"address": "127.0.0.1", "local": True, "default": False},
        {"address": "10.7.1.4", "local": False, "default": False},
        {"address": "10.9.1.4", "local": False, "default": True},
    ]}  # fmt: skip
    return Server.objects.create(name="kp-01", last_seen_at=timezone.now(), facts=facts, key="5a" * 32)


@pytest.fixture
def other(db):
    return Server.objects.create(name="kp-02", last_seen_at=timezone.now(), key="6b" * 32)


@pytest.fixture
def olga(db):
    return User.objects.create_user("olga", role="operator")


@pytest.fixture
def as_operator(client, olga):
    client.force_login(olga)
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    return client


def text(answer, status=200):
    assert answer.status_code == status, answer.content[:3000]
    return answer.content.decode()
