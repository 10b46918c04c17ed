"""Playground, benchmarks and remedies in a real Chromium, with an engine that pretends."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import problems
from tests.browser.test_queue import LOOKS, look_at

SAID = ["<img src=x onerror=alert(1)>", "\n```py\n", "print(1)\n", "```\n", "fine"]


class Model(BaseHTTPRequestHandler):
    """Streams SAID; where it is asked to wait it says one word and waits until the other side hangs up."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.heard.append((self.headers["Authorization"], body))
        if body["messages"][-1]["content"] == "refuse":
            return self.refuse()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for piece in SAID:
            self.say({"choices": [{"delta": {"content": piece}, "finish_reason": None}]})
        if body["messages"][-1]["content"] == "wait":
            while not self.server.over.wait(0.05):
                try:
                    self.say({"choices": []})
                except OSError:
                    self.server.hung_up.set()
                    break
            self.close_connection = True
            return None
        self.say({"choices": [{"delta": {}, "finish_reason": "length"}]})
        self.say({"choices": [], "usage": {"completion_tokens": 41, "prompt_tokens": 17}})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True
        return None

    def say(self, data):
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())

    def refuse(self):
        told = json.dumps({"error": {"message": "this conversation is too long"}}).encode()
        self.send_response(400)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_words):
        pass


@pytest.fixture
def engine():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    made.heard, made.daemon_threads = [], True
    made.over, made.hung_up = threading.Event(), threading.Event()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.over.set()
    made.shutdown()
    made.server_close()


@pytest.fixture
def key(console, engine):
    console.forget()
    console.server(name="kp-01", rack="A1", family="910B3")
    console.serving(name="beside", port=engine.server_port)
    return console.serving(name="chatty", port=engine.server_port)


def test_one_talks_stops_and_copies(console, pages, engine, key):
    page = pages.open("/deployments/chatty/chat")
    expect(page.locator(".side")).to_contain_text("the engine writes what people ask")
    page.locator("summary", has_text="Settings").click()
    page.locator("#system").fill("be brief")
    page.locator("#stop").fill("END")
    page.locator("#message").fill("hello")
    page.locator("#message").press("Enter")
    answer = page.locator(".messages .model")
    expect(answer.locator("pre")).to_have_text("print(1)")
    expect(answer).to_contain_text("<img src=x onerror=alert(1)>")
    assert answer.locator("img").count() == 0
    expect(page.locator(".figures")).to_contain_text("41 tokens · 17 tokens asked · ended at max_tokens")
    expect(page.locator(".figures")).to_contain_text("TTFT")
    authorization, body = engine.heard[0]
    assert authorization == f"Bearer {key}"
    assert body["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert (body["max_tokens"], body["temperature"], body["stop"]) == (512, 0.7, ["END"])

    page.locator("#message").fill("wait")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".messages")).to_contain_text("Stopped by you.")
    assert engine.hung_up.wait(10)  # the console hung up, and the engine is free again
    assert [one["role"] for one in engine.heard[1][1]["messages"]] == ["system", "user", "assistant", "user"]

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#message").fill("it's")
    page.get_by_role("button", name="Copy as curl").click()
    expect(page.locator("#chat-told")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "$API_KEY" in copied and key not in copied and "it'\\''s" in copied
    assert key not in page.content()


def test_two_stand_side_by_side_and_a_refusal_is_told(console, quiet_pages, engine, key):
    page = quiet_pages.open("/deployments/chatty/chat?with=beside")
    page.locator("#message").fill("refuse")
    page.locator("#message").press("Enter")
    expect(page.locator(".messages .broken")).to_have_count(2)
    expect(page.locator(".messages .broken").first).to_contain_text("this conversation is too long")
    page.get_by_role("button", name="Begin anew").click()
    expect(page.locator(".messages > *")).to_have_count(0)
    page.reload()
    expect(page.locator(".messages > *")).to_have_count(0)


def test_the_plot_is_drawn_from_the_package_and_two_runs_compare(console, pages, engine, key):
    console.measured(count=2)
    page = pages.open("/deployments/chatty/benchmarks/")
    expect(page.locator("#bench-plot .scatterlayer .trace")).to_have_count(3)
    page.locator("#with").select_option(index=1)
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#bench-plot .scatterlayer .trace")).to_have_count(6)
    expect(page.get_by_role("table", name="Against another run")).to_contain_text("→")
    page.get_by_role("button", name="take these").click()
    expect(page.locator("#p-target_concurrency")).to_have_value("120")
    expect(page.locator("#p-degrees")).to_have_value("1, 2, 4, 8, 120")


@pytest.mark.parametrize(("theme", "width", "language"), LOOKS[1:3])
def test_axe_finds_nothing_and_nothing_sticks_out(console, pages, engine, key, theme, width, language):
    console.measured(count=2)
    console.failed_replica(name="beside")
    paths = {
        "playground": "/deployments/chatty/chat",
        "benchmarks": "/deployments/chatty/benchmarks/",
        "remedy": "/deployments/beside/replicas/1/remedy",
    }
    for name, path in paths.items():
        page = pages.open(path, theme=theme, width=width, language=language)
        if name == "benchmarks":
            expect(page.locator("#bench-plot .main-svg").first).to_be_visible()
        if name == "playground":
            page.locator("#message").fill("hello")
            page.locator("#message").press("Enter")
            expect(page.locator(".messages pre")).to_be_visible()
        look_at(page, name, theme, width, language)
        assert problems(page) == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
