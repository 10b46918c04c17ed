"""The pages of joining in a real browser: steps as they are reached, a list of hosts, its keys and its end."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems

WIDTHS = [(1440, "light"), (360, "dark")]


@pytest.fixture(autouse=True)
def tidy(console):
    yield
    console.remove(prefix="kp-7")
    console.remove(prefix="kp-8")


def test_each_step_shows_as_it_is_reached(pages, console):
    enrolment = console.joining(name="kp-71")
    page = pages.open(f"/servers/join/{enrolment}/", user="ada")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if request.resource_type == "fetch" else None)
    expect(page.locator("#live-chip")).to_contain_text("live")
    steps = page.locator(".join-steps li.done")
    expect(steps).to_have_count(0)
    page.locator("[data-act=copy]").first.click()
    expect(steps).to_have_count(1)
    console.join_step(enrolment=enrolment, step="called")
    expect(steps).to_have_count(2)
    console.join_step(enrolment=enrolment, step="problem")
    expect(page.locator(".join-problems")).to_contain_text("Python: there is none")
    console.join_step(enrolment=enrolment, step="used")
    console.join_step(enrolment=enrolment, step="online")
    expect(steps).to_have_count(3)
    expect(page.locator(".join-problems")).to_have_count(0)
    console.sample(name="kp-71")
    expect(steps).to_have_count(4)
    expect(page.get_by_text("Open kp-71")).to_be_visible()
    assert len(asked) < 15, asked  # it asks when it was told, not each second


def test_without_a_websocket_the_steps_are_polled(quiet_pages, console):
    enrolment = console.joining(name="kp-72")
    page = quiet_pages.open("/", user="ada")
    page.route_web_socket("**/ws/", lambda socket: socket.close())
    page.goto(f"/servers/join/{enrolment}/")
    expect(page.locator("#live-chip")).to_contain_text("polling", timeout=30_000)
    console.join_step(enrolment=enrolment, step="called")
    expect(page.locator(".join-steps li.done")).to_have_count(2)


def test_keys_are_ticked_one_by_one_or_all(quiet_pages, console):
    many = console.join_many()
    page = quiet_pages.open(f"/servers/join/many/{many}/", user="ada")
    boxes = page.locator("#confirm [name=row]")
    expect(boxes).to_have_count(6)
    assert not any(box.is_checked() for box in boxes.all())
    page.locator("#all-keys input").check()
    assert all(box.is_checked() for box in boxes.all())
    boxes.first.uncheck()
    assert not page.locator("#all-keys input").is_checked()
    page.click("text=Join the ticked hosts")
    expect(page.get_by_role("alert")).to_contain_text("Neither a password nor a key was given")
    assert [box.is_checked() for box in boxes.all()] == [False, True, True, True, True, True]
    page.click("#join-cancel")
    expect(page.get_by_text("Try 6 hosts again")).to_be_visible()


def test_a_list_is_checked_before_anything_begins(pages, console):
    page = pages.open("/servers/join/many/", user="ada")
    page.fill("#text", "kp-81.invalid\nkp 82\n")
    page.click("text=Check the list")
    expect(page.get_by_text("1 host can join")).to_be_visible()
    expect(page.get_by_text("neither an address nor the name")).to_be_visible()
    page.click("text=Read the host key of 1 host")
    page.wait_for_url("**/servers/join/many/*/")
    expect(page.locator("tr[data-state=failed]")).to_contain_text("cannot resolve this name", timeout=30_000)


@pytest.mark.parametrize(("width", "theme"), WIDTHS)
@pytest.mark.parametrize("path", ["new", "seen", "asking", "ended", "line"])
def test_the_pages_are_sound_at_every_width(pages, console, path, width, theme):
    if path in ("new", "seen"):
        page = pages.open("/servers/join/many/", user="ada", width=width, theme=theme)
        if path == "seen":
            page.fill("#text", "host,name,labels\n192.0.2.81,kp-81,env=prod\nkp 82,,\n192.0.2.81,kp-83,\n")
            page.click("text=Check the list")
    else:
        many = console.join_many(phase="asking" if path == "asking" else "ended")
        page = pages.open(
            f"/servers/join/many/{many}/{'lines/1/' if path == 'line' else ''}", user="ada", width=width, theme=theme
        )
    page.wait_for_selector("h1")
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
