"""The fleet page in a real browser: squares move, filters stay in the address, everything works from the keyboard."""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems

BUSY = [{"aicore_pct": 90, "temp_c": 61, "power_w": 320.0, "hbm_used_mb": 50000}, {}, {}, {"health": "Alarm"}]
FOREIGN = [{"npu": 0, "chip": 0, "pid": 4711, "name": "train", "memory_mb": 46000, "user": "wang", "command": "train"}]


@pytest.fixture(autouse=True)
def readings(console):
    """kp-01 has a foreign process and a faulty card, kp-sim (simulated) is idle."""
    console.sample(name="kp-01", npus=BUSY, processes=FOREIGN, seq=int(time.time()))
    console.sample(name="kp-sim", npus=[{}] * 8, seq=int(time.time()))


def row(page, name):
    return page.locator("tr.server", has=page.get_by_role("link", name=re.compile(f"^{name}")))


def pixel(page, name, x, y):
    """[r, g, b, a] of one place of a row's squares."""
    script = "(canvas, [x, y]) => [...canvas.getContext('2d').getImageData(x, y, 1, 1).data]"
    return row(page, name).locator("canvas").evaluate(script, [x, y])


def test_a_reading_changes_the_square_and_the_numbers(console, pages):
    page = pages.open("/")
    expect(page.locator("#live-chip")).to_have_text("live")
    expect(row(page, "kp-01").locator("[data-field=aicore]")).to_have_text("22")
    before = pixel(page, "kp-01", 8, 3)
    console.sample(
        name="kp-01", npus=[{**BUSY[0], "aicore_pct": 10}, *BUSY[1:]], processes=FOREIGN, seq=int(time.time()) + 1
    )
    expect(row(page, "kp-01").locator("[data-field=aicore]")).to_have_text("2")
    console.until(lambda: pixel(page, "kp-01", 8, 3) != before)


def test_counts_are_filters_and_the_address_keeps_them(console, pages):
    page = pages.open("/")
    real = page.locator("[data-fleet=real]")
    expect(real.locator("[data-show=faulty] b")).to_have_text("1")
    real.locator("[data-show=faulty]").click()
    expect(row(page, "kp-01")).to_be_visible()
    expect(row(page, "kp-sim")).to_be_hidden()
    assert page.url.endswith("/?fleet=real&show=faulty")
    page.reload()
    expect(row(page, "kp-sim")).to_be_hidden()
    real.locator("[data-show=faulty]").click()
    expect(row(page, "kp-sim")).to_be_visible()
    assert page.url.endswith("/")


def test_typing_filters_and_nothing_left_says_so(console, pages):
    page = pages.open("/")
    page.keyboard.press("/")
    page.keyboard.type("wang")
    expect(row(page, "kp-sim")).to_be_hidden()
    expect(row(page, "kp-01")).to_be_visible()
    page.keyboard.type("zzz")
    expect(page.locator("#no-match")).to_be_visible()
    page.keyboard.press("Escape")
    expect(row(page, "kp-sim")).to_be_visible()


def test_a_change_of_occupancy_moves_counts_and_holder(console, pages):
    page = pages.open("/")
    expect(page.locator("[data-fleet=real] [data-show=foreign] b")).to_have_text("1")
    console.sample(name="kp-01", npus=[{}] * 4, seq=int(time.time()) + 1)
    expect(page.locator("[data-fleet=real] [data-show=foreign] b")).to_have_text("0", timeout=20_000)
    expect(row(page, "kp-01").locator("[data-field=holder]")).to_have_text("free", timeout=20_000)
    expect(row(page, "kp-01").locator(".name")).to_have_class("name ok")


def test_the_card_tells_the_process_and_the_keyboard_reads_the_squares(console, pages):
    page = pages.open("/")
    row(page, "kp-01").locator("canvas").hover(position={"x": 8, "y": 7})
    card = page.locator("#hover-card")
    expect(card).to_contain_text("kp-01 · NPU 0")
    expect(card).to_contain_text("pid 4711 wang train 46,000 MB")
    page.mouse.move(5, 5)
    expect(card).to_be_hidden()
    row(page, "kp-01").locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    expect(page.locator("#readout")).to_contain_text("kp-01 · NPU 3: AI Core 0 %")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#readout")).to_contain_text("kp-sim · NPU 3")
    page.keyboard.press("Enter")
    page.wait_for_url("**/servers/kp-sim/")


def test_the_metric_can_be_chosen_by_key_and_stays_in_the_address(console, pages):
    page = pages.open("/")
    page.keyboard.press("3")
    expect(page.locator("[name=metric]")).to_have_value("temp_c")
    assert "metric=temp_c" in page.url
    expect(page.locator("[data-scale=high]")).to_have_text("100 °C")


def test_the_table_holds_the_same_servers_and_is_kept_true(console, pages):
    page = pages.open("/?view=table")
    expect(row(page, "kp-01").locator("[data-field=faulty]")).to_have_text("1")
    console.sample(name="kp-01", npus=[{}] * 4, seq=int(time.time()) + 1)
    expect(row(page, "kp-01").locator("[data-field=faulty]")).to_have_text("0", timeout=20_000)
    expect(row(page, "kp-sim").locator(".simulated")).to_have_text("simulated")


def test_a_server_that_joins_appears_by_itself(console, pages):
    page = pages.open("/")
    console.server(name="kp-new", rack="A1")
    console.until(lambda: console.sample(name="kp-new", npus=[{}, {}]) or row(page, "kp-new").count() == 1, seconds=20)
    expect(page.locator("[data-fleet=real] .total b").first).to_have_text("2")
    expect(row(page, "kp-new").locator("canvas")).to_be_visible()


def test_the_palette_jumps_to_a_server(console, pages):
    page = pages.open("/")
    page.keyboard.press("Control+k")
    page.keyboard.type("kp-01")
    expect(page.locator("#palette-list [aria-selected=true]")).to_contain_text("kp-01")
    page.keyboard.press("Enter")
    page.wait_for_url("**/servers/kp-01/")


def test_language_and_theme_are_switched_and_kept(console, pages):
    page = pages.open("/")
    page.get_by_role("button", name="中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    page.locator("header [data-act=theme]").first.click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")


def test_nothing_sticks_out_at_360_px_and_targets_are_large_enough(console, pages):
    page = pages.open("/", width=360, height=780)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    small = page.evaluate(
        "[...document.querySelectorAll('.main :is(.button, .select, .input, .count, .icon-button), .rail a')]"
        ".filter((node) => node.offsetParent && node.offsetHeight < 44).map((node) => node.outerHTML.slice(0, 80))"
    )
    assert small == []


@pytest.mark.parametrize("address", ["/", "/?view=table", "/?find=nobody"])
@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 360)])
def test_axe_finds_nothing(console, pages, address, theme, width):
    page = pages.open(address, theme=theme, width=width, language="zh-hans" if width == 360 else "en", user="ada")
    page.wait_for_timeout(300)
    assert problems(page) == []


def test_the_page_works_without_websockets(console, quiet_pages):
    page = quiet_pages.open("/login/")
    blocked = "class { static OPEN = 1; constructor() { setTimeout(() => this.onclose({ code: 1006 })); } close() {} }"
    page.add_init_script(f"window.WebSocket = {blocked}")
    page.goto("/")
    expect(page.locator("#live-chip")).to_have_text("polling", timeout=15000)
    console.sample(
        name="kp-01", npus=[{**BUSY[0], "aicore_pct": 52}, *BUSY[1:]], processes=FOREIGN, seq=int(time.time()) + 1
    )
    expect(row(page, "kp-01").locator("[data-field=aicore]")).to_have_text("13", timeout=20_000)


def test_a_console_that_was_away_is_live_again_within_seconds(quiet_pages):
    away = [True]
    page = quiet_pages.open("/login/")
    page.route_web_socket("**/ws/", lambda socket: socket.close() if away else socket.connect_to_server())
    page.route("**/fleet.json", lambda route: route.abort() if away else route.continue_())
    page.goto("/")
    expect(page.locator("#live-chip")).to_have_attribute("title", re.compile("does not answer"), timeout=15000)
    away.clear()
    expect(page.locator("#live-chip")).to_have_text("live", timeout=20_000)  # not after the 30 s between two tries


@pytest.fixture
def crowd(console):
    console.many(count=70, prefix="wall-")
    yield
    console.remove(prefix="wall-")


def test_many_servers_are_one_wall_that_filters_moves_and_opens(console, crowd, pages):
    page = pages.open("/?fleet=simulated")
    canvas = page.locator("#wall canvas")
    console.until(lambda: page.locator("[data-fleet=simulated] [data-npus]").inner_text() == "568", seconds=20)
    tall = canvas.evaluate("(node) => node.clientHeight")
    page.fill("#find", "wall-7")
    console.until(lambda: canvas.evaluate("(node) => node.clientHeight") < tall, seconds=15)
    assert page.url.endswith("/?fleet=simulated&find=wall-7")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#readout")).to_contain_text("wall-7 · NPU")
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#readout")).to_contain_text("wall-70 · NPU")
    page.keyboard.press("Enter")
    page.wait_for_url("**/servers/wall-70/")


def test_a_long_table_reads_again_what_is_on_the_screen(console, crowd, pages):
    page = pages.open("/servers/?find=wall-1&sort=name")
    cell = row(page, "wall-1$").locator("[data-field=hottest]")
    console.until(lambda: cell.count() == 1 and cell.inner_text() not in ("97", "—"), seconds=20)
    console.sample(name="wall-1", npus=[{"temp_c": 97}] * 8, seq=2)
    expect(cell).to_have_text("97", timeout=20_000)


def test_a_step_sent_by_ingest_colours_its_square_on_the_wall(console, crowd, pages):
    page = pages.open("/?find=wall-1&metric=temp_c")
    console.until(lambda: page.locator("[data-fleet=simulated] [data-npus]").inner_text() == "568", seconds=20)
    picture = "(node) => node.toDataURL()"
    before = page.locator("#wall canvas").evaluate(picture)
    console.sample(name="wall-1", npus=[{"temp_c": 97}] * 8, seq=2)
    assert console.until(lambda: page.locator("#wall canvas").evaluate(picture) != before, seconds=15)


def test_colours_told_again_make_no_server_younger(console, pages):
    """The hub tells every colour at the opening, those of a silent server as well."""
    ages = pages.open("/jobs/").evaluate(
        """async () => {
          const { Fleet } = await import("/static/js/fleet/model.js");
          const server = (id, state) => ({ id, state, age: 90, first: id, npus: [[50, null, null, null, 1, 0]] });
          const servers = [server(0, "live"), server(1, "offline")], limits = { aicore_pct: [0, 100] };
          const fleet = new Fleet({ gen: 1, limits, servers }, "aicore_pct");
          const ages = (...steps) => {
            fleet.applySteps(btoa(String.fromCharCode(...steps.flatMap((step) => [0, step]))));
            return fleet.servers.map((one) => Math.round(fleet.age(one)));
          };
          return [ages(8, 8), ages(9, 9)];
        }"""
    )
    assert ages == [[90, 90], [0, 90]]


def test_ticked_servers_are_edited_and_hidden_ones_are_not(console, pages):
    page = pages.open("/servers/")
    form = page.locator("#chosen-form")
    expect(form).to_be_hidden()
    row(page, "kp-01").locator("[name=server]").check()
    row(page, "kp-sim").locator("[name=server]").check()
    expect(form).to_contain_text("Edit 2 servers")
    page.fill("#find", "kp-01")
    expect(row(page, "kp-sim")).to_be_hidden()
    form.locator("button").click()
    page.wait_for_url(re.compile("/servers/edit"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Edit 1 server")
    assert problems(page) == []
    page.fill("#add_labels", "env=prod")
    page.fill("#site", "Beijing")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.locator(".hits")).to_contain_text("env=prod")
    page.get_by_role("button", name="Change 1 server").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Change of 1 server")
    page.goto("/")
    page.fill("#find", "label:env=prod site:beijing")
    expect(row(page, "kp-01")).to_be_visible()
    expect(row(page, "kp-sim")).to_be_hidden()
    # What is shown is kept under a name, and found again.
    page.locator("[data-open=saved-filters]").click()
    page.fill("#filter-name", "Production")
    page.get_by_role("button", name="Save this filter").click()
    expect(page.locator(".banners")).to_contain_text("The filter “Production” is saved.")
    page.goto("/")
    page.locator("[data-open=saved-filters]").click()
    page.get_by_role("link", name="Production", exact=True).click()
    expect(row(page, "kp-sim")).to_be_hidden()
    assert "label%3Aenv%3Dprod" in page.url
    page.goto("/servers/kp-01/history")
    page.get_by_role("link", name="Take back…").first.click()
    page.get_by_role("button", name="Take it back on 1 server").click()
    expect(page.locator(".banners")).to_contain_text("Taken back: 2.")
    assert problems(page) == []
