"""The page at / as somebody uses it, in a real browser: Debian's chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

_CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(
    _CHROMIUM is None, reason="chromium is not installed: run scripts/install_system_packages"
)


@contextmanager
def launched() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield one
        one.close()


@contextmanager
def opened(url: str, browser: Browser) -> Iterator[Page]:
    """Fails a test in which the console has an error or another host is asked."""
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    one = context.new_page()
    one.set_default_timeout(30_000)
    wrong: list[str] = []
    one.on("console", lambda message: message.type == "error" and wrong.append(message.text))
    one.on("pageerror", lambda error: wrong.append(str(error)))
    one.on(
        "request",
        lambda request: (
            request.url.startswith((url, "data:", "blob:")) or wrong.append(request.url)
        ),
    )
    one.goto(url)
    expect(one.locator("#model")).to_have_value("tiny")
    yield one
    context.close()
    assert wrong == []


def limit(page: Page, tokens: int) -> None:
    page.get_by_label("Settings", exact=True).first.click()
    page.get_by_label("Longest answer, tokens").fill(str(tokens))
    page.get_by_label("Settings", exact=True).first.click()


def send(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_role("button", name="Send", exact=True).click()


def ended(page: Page) -> None:
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible(timeout=60_000)
