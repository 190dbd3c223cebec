"""The built pages, opened from their folder by headless Chromium."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sync import ROOT

pytest.importorskip("material", reason="needs the extra `docs`")
webdriver = pytest.importorskip("selenium.webdriver", reason="needs the extra `dev`")
pytestmark = pytest.mark.slow("the site")
WIDTHS = {"phone": 390, "desk": 1440}
# Pixels by which a page is wider than its window, as soon as that has been laid out.
TOO_WIDE = """
    const done = arguments[0], page = document.documentElement
    const measure = () => done(page.scrollWidth - page.clientWidth)
    requestAnimationFrame(() => requestAnimationFrame(measure))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built pages."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window, which keeps what pages print and what they load."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.add_argument("--headless=new")
    options.add_argument("--no-sandbox")  # it is not there for root, nor in most containers
    options.add_argument("--disable-dev-shm-usage")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()


def show(browser: Any, width: int, dark: bool = False) -> None:
    """Sets the width in pixels, and which colours the reader's system asks for."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [colours]})


def loaded(browser: Any) -> set[str]:
    """Addresses that were asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return {request["request"]["url"] for request in requests}


def too_wide(browser: Any) -> int:
    """Pixels by which the page is wider than its window, once it has settled at a new width."""
    for _ in range(20):
        wide = browser.execute_async_script(TOO_WIDE)
        if wide <= 0:
            break
        time.sleep(0.1)
    return wide


def test_every_page_fits_and_loads_nothing_from_elsewhere(site: Path, browser: Any) -> None:
    pages = sorted(path for path in site.rglob("*.html") if path.name != "404.html")
    assert len(pages) > 20
    problems = []
    for page in pages:
        name = page.relative_to(site)
        show(browser, WIDTHS["desk"])
        browser.get(page.as_uri())
        for device, width in WIDTHS.items():
            show(browser, width)
            wide = too_wide(browser)
            if wide > 0:
                problems.append(f"{name} is {wide} pixels too wide for a {device}")
        problems += [f"{name}: {entry['message']}" for entry in browser.get_log("browser")]
        elsewhere = [url for url in loaded(browser) if not url.startswith(("file:", "data:"))]
        problems += [f"{name} loads {url}" for url in elsewhere]
    assert problems == []


def test_a_page_that_is_wrong_is_noticed(tmp_path: Path, browser: Any) -> None:
    """What the test above looks for is seen where it is."""
    page = tmp_path / "page.html"
    page.write_text(
        '<div style="width: 2000px">wide</div><script src="http://localhost:9/x.js"></script>'
    )
    show(browser, WIDTHS["desk"])
    browser.get(page.as_uri())
    script = "return document.documentElement.scrollWidth"
    assert browser.execute_script(script) >= 2000
    assert too_wide(browser) > 500
    assert any("localhost:9" in entry["message"] for entry in browser.get_log("browser"))
    assert "http://localhost:9/x.js" in loaded(browser)


def wait_for(browser: Any, script: str) -> Any:
    """What the script returns as soon as it returns something; fails after ten seconds."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 10).until(lambda browser: browser.execute_script(script))


def test_search_by_keyboard_in_pages_opened_from_the_folder(site: Path, browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    show(browser, WIDTHS["desk"])
    browser.get((site / "index.html").as_uri())
    body = browser.find_element("css selector", "body")
    body.send_keys("/")  # the theme's key for search
    wait_for(browser, "return document.activeElement.classList.contains('md-search__input')")
    browser.switch_to.active_element.send_keys("explained variance")
    found = wait_for(browser, "return document.querySelector('.md-search-result__link')?.href")
    browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    wait_for(browser, f"return location.href.startsWith('{found.partition('?')[0]}')")
    assert "explained" in browser.find_element("css selector", "article").text


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_colours_are_the_systems_until_the_reader_chooses(
    dark: bool, site: Path, browser: Any
) -> None:
    scheme = "return document.body.getAttribute('data-md-color-scheme')"
    show(browser, WIDTHS["desk"], dark)
    browser.get((site / "index.html").as_uri())
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    assert browser.execute_script(scheme) == ("slate" if dark else "default")
    browser.find_element("css selector", "label[for^='__palette']:not([hidden])").click()
    assert browser.execute_script(scheme) == ("default" if dark else "slate")
