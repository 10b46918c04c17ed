"""The pages that bring models in, in a real Chromium: forms, a look that ends, an upload that is cut off."""

import hashlib
import json

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.browser.test_queue import LOOKS, look_at

PAGES = {"download": "/models/download/", "copy": "/models/copy/", "upload": "/models/upload/"}


@pytest.fixture
def console_here(console):
    console.forget()
    console.heard(name="kp-01")
    return console


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "tiny-model"
    (made / "sub").mkdir(parents=True)
    (made / "config.json").write_text(json.dumps({"a": "x" * 5000}))
    (made / "sub" / "x.safetensors").write_bytes(bytes(range(256)) * 40_000)
    (made / ".hidden").write_text("never sent")
    return made


@pytest.mark.parametrize(("theme", "width", "language"), LOOKS)
@pytest.mark.parametrize("name", [*PAGES, "look", "refused"])
def test_axe_finds_nothing_and_nothing_sticks_out(console_here, pages, quiet_pages, name, theme, width, language):
    path = PAGES.get(name, PAGES["download"])
    if name == "look":
        path = f"/models/download/{console_here.model_looked(server='kp-01')}/"
    of = quiet_pages if name == "refused" else pages  # Chromium complains of every 422
    page = of.open(path, theme=theme, width=width, language=language, height=900 if width > 700 else 740)
    if name == "refused":
        page.locator("#server").fill("kp-01")
        page.locator("#model").fill("no name at all")
        page.locator("main form button[type=submit]").click()
        expect(page.locator(".refusal")).to_be_visible()
    look_at(page, f"models-{name}", theme, width, language)
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_look_comes_by_itself_and_is_confirmed(console_here, pages):
    page = pages.open(PAGES["download"])
    page.locator("#server").fill("kp-01")
    page.get_by_label("Model", exact=True).fill("Qwen/Qwen2.5-7B-Instruct")
    page.get_by_role("button", name="Look what would come…").click()
    page.wait_for_url("**/models/download/*/")
    expect(page.locator("[data-job]")).to_be_visible()
    console_here.model_looked(job=console_here.newest_job())
    expect(page.get_by_role("heading", name="Fetch it to kp-01?")).to_be_visible()
    page.get_by_role("button", name="Download").click()
    page.wait_for_url("**/jobs/*/")
    assert console_here.rows(job=console_here.newest_job())["params"]["model"] == "Qwen/Qwen2.5-7B-Instruct"


def test_an_upload_that_is_cut_off_goes_on(console_here, quiet_pages, folder):
    page = quiet_pages.open(PAGES["upload"])
    sent = []

    def cut(route):
        sent.append(route.request.url)
        route.abort() if len(sent) == 2 else route.continue_()

    page.route("**/models/uploads/*/*/*", cut)
    page.locator("#files").set_input_files(folder)
    expect(page.locator("#name")).to_have_value("tiny-model")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_text("all of it is here")).to_be_visible(timeout=30_000)
    whole = hashlib.sha256((folder / "sub" / "x.safetensors").read_bytes()).hexdigest()
    (upload,) = console_here.uploads()
    assert {row["name"]: row["sha256"] for row in upload["files"]}["sub/x.safetensors"] == whole
    assert len(upload["files"]) == 2, "hidden files stay where they are"
    page.get_by_role("link", name="To a server…").click()
    expect(page.get_by_label("Model", exact=True)).to_have_value(upload["id"])
    page.go_back()
    page.get_by_role("button", name="Delete tiny-model").click()
    expect(page.get_by_text("None yet")).to_be_visible()


def test_a_refused_upload_says_why(console_here, quiet_pages, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "weights.bin").write_bytes(b"x")
    page = quiet_pages.open(PAGES["upload"])
    page.locator("#files").set_input_files(tmp_path / "m")
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("#upload-said")).to_contain_text("pickles only")
