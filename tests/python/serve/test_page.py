"""The page at /, in a real browser: Debian's chromium."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from convert import tiny_llama
from page_browser import ended, launched, limit, needs_chromium, opened, send
from playwright.sync_api import Browser, Page, Route, expect
from serving import Served, serving, tiny_settings
from waiting import eventually

from pagewheel.convert import convert

expect.set_options(timeout=30_000)
pytestmark = needs_chromium
LONG = {"prompt": "a " * 200, "max_tokens": 300, "ignore_eos": True, "model": "tiny"}
HOSTILE = """<script>window.harmed = 1</script><img src=x onerror="window.harmed = 2">
[link](javascript:window.harmed=3) ![far](http://example.com/a.png)
<iframe srcdoc="<script>parent.harmed=4</script>"></iframe><svg onload="window.harmed=5">

| a | b |
|---|---|
| 1 | 2 |

```python
print("<b>code</b>")
```
"""


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(tiny_folder)) as one:
        yield one


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as one:
        yield one


@pytest.fixture
def page(served: Served, browser: Browser) -> Iterator[Page]:
    with opened(served.url, browser) as one:
        yield one


@pytest.fixture(scope="module")
def slow_served(smollm2_folder: Path) -> Iterator[Served]:
    """With a model that is still at its answer when a slow browser looks."""
    with serving(tiny_settings(smollm2_folder)) as one:
        yield one


def stored(page: Page) -> list[dict]:
    text = page.evaluate("localStorage.getItem('pagewheel.conversations')")
    return json.loads(text)["list"]


def import_answer(page: Page, text: str) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}]
    body = {"conversations": [{"id": "x", "title": "imported", "messages": messages}]}
    file = {"name": "a.json", "mimeType": "application/json", "buffer": json.dumps(body).encode()}
    page.locator("#import-file").set_input_files(file)
    page.get_by_role("button", name="imported", exact=True).click()


def test_an_answer_comes_and_is_kept_across_a_reload(page: Page) -> None:
    limit(page, 12)
    send(page, "Hello there")
    ended(page)
    expect(page.locator("article.assistant .note")).to_contain_text("12 tokens")
    page.reload()
    expect(page.locator("article.user")).to_contain_text("Hello there")
    expect(page.locator("article.assistant")).to_have_count(1)
    page.get_by_role("button", name="New conversation").first.click()
    expect(page.locator("article")).to_have_count(0)
    page.get_by_role("button", name="Hello there", exact=True).click()
    expect(page.locator("article")).to_have_count(2)


# In the page, as the tiny model may end before a click from outside arrives.
STOP_AT_THE_FIRST_TOKEN = """() => new MutationObserver((_, observer) => {
  if (!document.querySelector("article.assistant.busy .body")?.textContent) return;
  observer.disconnect();
  document.getElementById("stop").click();
}).observe(document.body, { subtree: true, childList: true, characterData: true })"""


def test_stop_ends_the_request_and_keeps_what_there_is(
    slow_served: Served, browser: Browser
) -> None:
    def without_end(route: Route) -> None:
        route.continue_(post_data={**route.request.post_data_json, "ignore_eos": True})

    with opened(slow_served.url, browser) as page:
        page.route("**/v1/chat/completions", without_end)  # the model may end after a sentence
        limit(page, 3000)
        page.evaluate(STOP_AT_THE_FIRST_TOKEN)
        send(page, "Count from one to a thousand, in words.")
        ended(page)
        expect(page.locator("article.assistant .note")).to_have_text("stopped")
        assert stored(page)[0]["messages"][1]["content"]
    eventually(slow_served.is_at_rest)


def test_edit_and_regenerate_replace_what_follows(page: Page) -> None:
    limit(page, 8)
    for text in ("first", "second"):
        send(page, text)
        ended(page)
    expect(page.locator("article")).to_have_count(4)
    page.get_by_role("button", name="Edit", exact=True).first.click()
    page.get_by_label("Edit the message").fill("other")
    page.get_by_role("button", name="Send again").click()
    ended(page)
    expect(page.locator("article")).to_have_count(2)
    expect(page.locator("article.user")).to_contain_text("other")
    page.get_by_role("button", name="Regenerate").click()
    ended(page)
    expect(page.locator("article")).to_have_count(2)


def test_settings_and_attachments_are_in_the_request(page: Page) -> None:
    limit(page, 4)
    page.get_by_label("Settings", exact=True).first.click()
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.5")
    file = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"forty-two"}
    page.locator("#files").set_input_files(file)
    expect(page.locator("#attachments")).to_contain_text("notes.txt")
    with page.expect_request("**/v1/chat/completions") as sent:
        send(page, "Read it")
    body = sent.value.post_data_json
    assert body["temperature"] == 0.5
    assert body["max_tokens"] == 4
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert "forty-two" in body["messages"][1]["content"]
    ended(page)


def test_hostile_markdown_runs_nothing_and_good_markdown_is_shown(page: Page) -> None:
    import_answer(page, HOSTILE)
    body = page.locator("article.assistant .body")
    expect(body.locator("table td")).to_have_count(2)
    expect(body.locator("pre code")).to_contain_text('print("<b>code</b>")')
    expect(body.get_by_label("Copy the code")).to_have_count(1)
    assert body.locator("script, img, iframe, svg, [onerror]").count() == 0
    expect(body).to_contain_text("<script>window.harmed = 1</script>")
    assert body.locator("a[href^=javascript]").count() == 0
    assert page.evaluate("window.harmed") is None


def test_reasoning_is_folded(page: Page) -> None:
    import_answer(page, "<think>deep thought</think>Answer")
    expect(page.get_by_text("deep thought")).to_be_hidden()
    page.get_by_text("Reasoning", exact=True).click()
    expect(page.get_by_text("deep thought")).to_be_visible()


def test_the_cache_view_shows_three_clients(slow_served: Served, browser: Browser) -> None:
    with opened(slow_served.url, browser) as page:
        check_three_clients(slow_served, page)


def check_three_clients(served: Served, page: Page) -> None:
    bodies = [{**LONG, "prompt": "a " * 200 + str(each)} for each in range(3)]
    served.post("/v1/completions", {**LONG, "max_tokens": 1})  # what they share is in the cache
    seen = threading.Event()

    def ask(body: dict) -> None:
        while not seen.is_set():
            served.post("/v1/completions", body)

    clients = [threading.Thread(target=ask, args=(body,)) for body in bodies]
    page.get_by_role("tab", name="Cache").click()
    for each in clients:
        each.start()
    rows = page.locator("#sequences tbody tr")
    try:
        expect(rows).to_have_count(3)
        expect(rows.first).to_contain_text("decoding")
        expect(rows.first.locator("td").last).to_contain_text("#")
        expect(page.locator("#blocks")).not_to_have_attribute("aria-label", "Blocks of the cache")
    finally:
        seen.set()
    for each in clients:
        each.join()
    expect(page.get_by_text("No request is running.")).to_be_visible()


def test_dark_mode_is_kept(page: Page) -> None:
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_label("Light or dark").click()
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert after != before
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


# Setting more throws what a browser throws that has no room.
FILL_THE_STORAGE = """() => {
  for (let size = 1 << 23; size >= 1; size >>= 1) {
    try {
      for (let number = 0; ; number++) {
        localStorage.setItem(`filler-${size}-${number}`, "a".repeat(size));
      }
    } catch {
      // less may fit
    }
  }
}"""


def test_settings_hold_in_a_tab_whose_storage_is_full(page: Page) -> None:
    page.evaluate(FILL_THE_STORAGE)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_label("Light or dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    expect(page.get_by_role("alert")).to_contain_text("storage is full")
    limit(page, 7)
    expect(page.get_by_role("alert")).to_contain_text("storage is full")
    with page.expect_request("**/v1/chat/completions") as sent:
        send(page, "Hello")
    assert sent.value.post_data_json["max_tokens"] == 7
    ended(page)


def test_a_phone_is_wide_enough(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    for name in ("Chat", "Cache"):
        page.get_by_role("tab", name=name).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("tab", name="Chat").click()
    expect(page.locator("#sidebar")).to_be_hidden()
    page.locator("#toggle-list").click()
    expect(page.locator("#sidebar")).to_be_visible()


def test_the_keyboard_is_enough(page: Page) -> None:
    limit(page, 4)
    page.reload()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the skip link
    expect(page.locator("#input")).to_be_focused()
    page.keyboard.type("By keyboard")
    page.keyboard.press("Enter")
    ended(page)
    expect(page.locator("article")).to_have_count(2)
    page.locator("#tab-chat").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#cache")).to_be_visible()


def test_the_page_asks_for_the_key_and_then_works(tiny_folder: Path, browser: Browser) -> None:
    with serving(tiny_settings(tiny_folder, keys=("right-key-1",))) as served:
        assert served.http.get("/cache").status_code == 401
        page = browser.new_page()
        page.goto(served.url)
        expect(page.get_by_role("alert")).to_contain_text("API key")
        page.get_by_label("API key").fill("right-key-1")
        page.keyboard.press("Tab")
        expect(page.locator("#model")).to_have_value("tiny")
        page.close()


def test_a_chat_goes_on_beyond_the_context_and_says_so_once(
    browser: Browser, tmp_path: Path
) -> None:
    source = tiny_llama.write(tmp_path / "a.gguf", metadata={"llama.context_length": 256})
    folder = convert(source, tmp_path / "converted", progress=False)
    with serving(tiny_settings(folder)) as short, opened(short.url, browser) as page:
        limit(page, 8)
        for number in range(5):
            send(page, f"Question {number}? " + "why " * 20)
            ended(page)
        expect(page.locator("article.assistant")).to_have_count(5)
        expect(page.get_by_text("the model forgets older parts")).to_have_count(1)
        page.reload()
        expect(page.get_by_text("the model forgets older parts")).to_have_count(1)
