"""The web page, in a real Chromium against a real server."""

from __future__ import annotations

import asyncio
import io
import re
import shutil
import socket
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from PIL import Image

from mineru_engine.server import page as web_page
from mineru_engine.server import pages as page_pictures
from mineru_engine.server.app import create_app
from mineru_engine.server.keys import FILE_NAME, Keys
from mineru_engine.settings import Settings
from tests.make_documents import docx, encrypted, image_bytes, text_image, text_pdf
from tests.server.serving import Client, Running, wait_until

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 30_000
FORMULAS = r"""<html><body><h1>Waves</h1><p>The speed is <math><semantics><mi>v</mi>
<annotation encoding="application/x-tex">v=\sqrt{\frac{g\lambda}{2\pi}}</annotation></semantics></math>.</p>
<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table></body></html>"""
HOSTILE = """<!doctype html><html><head><title>x</title></head><body onload="parent.hacked=1">
<div class="docvortex-block" data-page-idx="0" data-block-index="0"><p>Kept text</p></div>
<script>parent.hacked=1</script><img src="x" onerror="parent.hacked=1"><svg onload="parent.hacked=1"></svg>
<img src="https://example.invalid/spy.png"><iframe src="javascript:parent.hacked=1"></iframe>
<a href="javascript:parent.hacked=1" id="trap">press</a><form action="/v1/jobs"><button>go</button></form>
<meta http-equiv="refresh" content="0;url=https://example.invalid/"><base href="https://example.invalid/">
<span class="docvortex-math" data-docvortex-latex="\\href{javascript:parent.hacked=1}{x}">x</span>
</body></html>"""
CONTRAST = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$|transparent/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const bad = [];
  for (const node of document.querySelectorAll("body *")) {
    const words = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!words || !node.checkVisibility() || node.closest(":disabled, .unseen, .skip, option")) continue;
    const style = getComputedStyle(node);
    if (!style.color.startsWith("rgb") || !paper(node).startsWith("rgb")) continue;
    const [a, b] = [light(style.color), light(paper(node))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) bad.push([node.outerHTML.slice(0, 90), style.color, paper(node)]);
  }
  return bad;
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for all tests here: what it costs is its worker processes."""
    settings = Settings.load(environ={})
    with Running(create_app(settings, data_dir=tmp_path_factory.mktemp("web") / "data")) as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def browse(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens a fresh browser profile; afterwards nothing may have failed in it, nor left for another host."""
    contexts, troubles = [], []

    def open_page(url: str, expected: str = "Failed to load resource", **options: Any) -> Any:
        context = chromium.new_context(**{"locale": "en-GB", "viewport": {"width": 1300, "height": 850}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        host = urlsplit(url).netloc

        def log(message: Any) -> None:
            if message.type == "error" and not re.search(expected, message.text):
                troubles.append(message.text)

        def request(sent: Any) -> None:
            if sent.url.startswith("http") and urlsplit(sent.url).netloc != host:
                troubles.append(f"asked another host: {sent.url}")

        page.on("console", log)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        context.on("request", request)
        page.goto(url)
        page.wait_for_selector("#start:not([hidden]), #job:not([hidden])")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture
def page(server: Running, browse: Callable[..., Any]) -> Any:
    return browse(server.url)


def start(page: Any, *files: Path | tuple[str, bytes], tier: str = "flash") -> str:
    """Send documents through the form; returns the job's id."""
    pairs = [(file.name, file.read_bytes()) if isinstance(file, Path) else file for file in files]
    page.set_input_files("#files", [{"name": name, "mimeType": "", "buffer": data} for name, data in pairs])
    page.select_option("#tier", tier)
    page.click("#send")
    page.wait_for_url("**/#/jobs/*")
    return str(page.url.rpartition("/")[2])


def until_state(page: Any, state: str) -> None:
    page.wait_for_selector(f".head .state.{state}")


def fresh(document: Path, note: str) -> tuple[str, bytes]:
    """The same document with other bytes, so that no earlier result is given."""
    return document.name, document.read_bytes() + f"\n%{note}\n".encode()


def test_a_document_sent_by_the_form_is_shown_beside_its_result(page: Any, server: Running, demo: Path) -> None:
    job = start(page, demo / "paper.pdf")
    until_state(page, "completed")
    frame = page.frame_locator("iframe.rendered")
    assert frame.locator("h1").first.inner_text().startswith("Estimating Evaporation")
    assert frame.locator("table").count() == 4
    assert frame.locator("img").first.evaluate("image => image.decode().then(() => image.naturalWidth)") > 50
    shown = page.locator("figure.loaded img").first
    shown.wait_for()
    assert shown.evaluate("image => image.naturalWidth") == 1200
    page.click("role=tab[name=Markdown]")
    with server.client() as client:
        told = client.get(f"/v1/jobs/{job}/result", params={"format": "md"}).text
    assert page.locator("pre.markdown").inner_text() == told
    assert "flash" in page.locator(".notes").inner_text()


def test_formulas_are_set_and_a_format_without_pages_has_no_source(page: Any) -> None:
    start(page, ("waves.html", FORMULAS.encode()))
    until_state(page, "completed")
    frame = page.frame_locator("iframe.rendered")
    frame.locator("math msqrt mfrac").wait_for()
    assert frame.locator("th").all_inner_texts() == ["a", "b"]
    assert page.locator(".pane.source").count() == 0


def test_the_layout_lies_over_the_page_and_leads_to_the_result(page: Any, server: Running, demo: Path) -> None:
    job = start(page, demo / "paper.pdf")
    until_state(page, "completed")
    page.wait_for_selector("figure.loaded")
    with server.client() as client:
        block = client.get(f"/v1/jobs/{job}/result", params={"format": "json"}).json()["files"][0]
        middle = client.get(f"/v1/jobs/{job}/files/0/{block['stem']}_middle.json").json()
    first = middle["pages"][0]["blocks"]
    layout = page.locator("role=button[name=Layout]")
    assert layout.get_attribute("aria-pressed") == "false"
    layout.click()
    assert layout.get_attribute("aria-pressed") == "true"
    captions = sum(inner["type"].endswith("caption") for b in first if b["type"] == "table" for inner in b["content"])
    assert page.locator("[data-page='1'] .box").count() == len(first) + captions
    sheet = page.locator("[data-page='1'] .sheet").bounding_box()
    for found in (first[0], first[7]):
        box = page.locator(f"[data-page='1'] .box[data-block='{found['index']}']").bounding_box()
        left, top = (box["x"] - sheet["x"]) / sheet["width"], (box["y"] - sheet["y"]) / sheet["height"]
        assert (left, top) == pytest.approx(found["bbox"][:2], abs=0.003)
        assert box["width"] / sheet["width"] == pytest.approx(found["bbox"][2] - found["bbox"][0], abs=0.003)
    page.locator("[data-page='1'] .box[data-block='7']").click()
    frame = page.frame_locator("iframe.rendered")
    assert frame.locator(".chosen").get_attribute("data-block-index") == "7"
    frame.locator("[data-page-idx='1'] p").first.click()
    page.wait_for_selector("[data-page='2'] .box.chosen")


def test_pages_finish_before_the_eyes_and_a_reload_in_the_middle_loses_nothing(page: Any, demo: Path) -> None:
    job = start(page, fresh(demo / "report.pdf", "reload"), fresh(demo / "paper.pdf", "reload"))
    page.wait_for_function(
        "() => { const bar = document.querySelector('.progress progress'); return bar && bar.max > 1 && bar.value > 0 }"
    )
    assert re.search(r"\d+ of \d+ pages", page.locator(".progress p").inner_text())
    page.reload()
    assert page.url.endswith(job)
    until_state(page, "completed")
    page.wait_for_selector("iframe.rendered")
    assert page.locator(".progress").is_hidden()
    assert page.locator(".files a").all_text_contents() == ["report.pdf Done", "paper.pdf Done"]
    page.locator(".files a").nth(1).click()
    page.frame_locator("iframe.rendered").locator("h1:has-text('Evaporation')").wait_for()


def test_cancel_ends_the_job(page: Any, server: Running, demo: Path) -> None:
    job = start(page, *(fresh(demo / "report.pdf", f"cancel {n}") for n in range(4)))
    until_state(page, "running")
    page.click(".deeds button:has-text('Cancel')")
    until_state(page, "canceled")
    with server.client() as client:
        assert client.job(job)["state"] == "canceled"
    assert page.evaluate("document.activeElement.id") == "job-title"  # the focus has not fallen off with the button


def test_a_damaged_file_is_explained(page: Any) -> None:
    start(page, ("broken.pdf", b"%PDF-1.7\nnothing here"))
    until_state(page, "failed")
    card = page.locator(".pane .problem")
    assert card.locator("code").inner_text() == "file_damaged"
    assert card.locator("strong").inner_text() == "The file is damaged"
    assert "damaged" in card.locator("p").first.inner_text()


def test_a_refused_option_is_told_at_its_field(page: Any, demo: Path) -> None:
    page.set_input_files("#files", str(demo / "paper.pdf"))
    page.fill("#pages", "1," * 600)
    page.click("#send")
    page.wait_for_selector("#problem .problem")
    assert page.locator("#problem code").inner_text() == "option_invalid"
    assert page.locator("#pages").get_attribute("aria-invalid") == "true"
    assert page.evaluate("document.activeElement.id") == "pages"
    assert page.locator("#chosen li").count() == 1  # nothing has to be chosen again


def test_copy_and_downloads(page: Any, demo: Path) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.check("input[value=docx]")
    start(page, demo / "paper.pdf")
    until_state(page, "completed")
    page.click("text=Copy Markdown")
    page.wait_for_selector("button:has-text('Copied')")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.replace("\r\n", "\n").startswith("# Estimating Evaporation")
    with page.expect_download() as whole:
        page.click("text=Everything (ZIP)")
    assert "paper/paper.docx" in zipfile.ZipFile(whole.value.path()).namelist()
    page.click("summary:has-text('Download')")
    with page.expect_download() as one:
        page.click(".menu button:has-text('DOCX')")
    assert one.value.suggested_filename == "paper.docx"
    assert "word/document.xml" in zipfile.ZipFile(one.value.path()).namelist()
    page.focus(".menu summary")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert page.locator(".menu").get_attribute("open") is None


def test_history_outlives_the_browser(server: Running, browse: Callable[..., Any], demo: Path) -> None:
    with server.client() as client:
        made = client.create(("history-one.pdf", (demo / "paper.pdf").read_bytes()), formats="md")
        client.ended(made["id"])
    page = browse(server.url)
    page.click("#history a:has-text('history-one.pdf')")
    until_state(page, "completed")
    assert page.locator("#history a[aria-current]").inner_text().startswith("history-one.pdf")
    page.wait_for_selector("pre.markdown")  # the job has no HTML and says so
    assert "not asked for HTML" in page.locator(".notes").inner_text()
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("text=Delete")
    page.wait_for_selector("#start:not([hidden])")
    assert page.locator("#history a:has-text('history-one.pdf')").count() == 0
    with server.client() as client:
        assert client.get(f"/v1/jobs/{made['id']}").status_code == 404
    page.goto(f"{server.url}/#/jobs/{made['id']}")
    page.wait_for_selector("#problem code:text('job_not_found')")


def test_two_languages(server: Running, browse: Callable[..., Any], demo: Path) -> None:
    page = browse(server.url, locale="zh-CN")
    assert page.locator("h1").first.inner_text() == "把文档转换为 Markdown"
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    start(page, demo / "paper.pdf")
    page.wait_for_selector(".head .state:has-text('已完成')")
    page.select_option("#language", "en")
    page.wait_for_selector(".head .state:has-text('Done')")
    page.reload()
    page.wait_for_selector(".head .state:has-text('Done')")
    assert page.locator("html").get_attribute("lang") == "en"


def test_both_languages_have_all_words() -> None:
    text = (web_page.WEB / "words.js").read_text()
    tables = [
        re.findall(r"^  (\w+): ", part, re.MULTILINE) for part in re.split(r"^const (?:EN|ZH) = ", text, flags=re.M)
    ]
    english, chinese = tables[1], tables[2]
    assert english == chinese
    assert len(set(english)) == len(english) > 80
    used = set(re.findall(r'data-(?:text|label|hint)="(\w+)"', (web_page.WEB / "index.html").read_text()))
    for script in web_page.WEB.glob("*.js"):
        used |= set(re.findall(r'\btext\("(\w+)"', script.read_text()))
    assert used <= set(english)


def test_light_and_dark(server: Running, browse: Callable[..., Any], demo: Path) -> None:
    page = browse(server.url, color_scheme="dark")

    def ground(of: Any = page) -> int:
        colour = of.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
        return int(re.findall(r"\d+", colour)[0])

    assert ground() < 60
    start(page, demo / "paper.pdf")
    until_state(page, "completed")
    frame = page.frame_locator("iframe.rendered")
    frame.locator("h1").wait_for()
    assert ground(frame) < 60
    page.select_option("#theme", "light")
    assert ground() > 200
    assert ground(frame) > 200
    page.reload()
    assert ground() > 200


def test_everything_goes_by_keyboard(page: Any, demo: Path) -> None:
    def tab_to(selector: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab never came to {selector}")

    page.on("filechooser", lambda _: None)  # so that choosers are caught long before the key that opens one
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tab_to("#files")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(str(demo / "paper.pdf"))
    page.wait_for_selector("#chosen li")
    assert page.evaluate("document.activeElement.id") == "send"
    page.keyboard.press("Enter")
    until_state(page, "completed")
    page.wait_for_selector("iframe.rendered")
    tab_to("[role=tab]")
    page.keyboard.press("ArrowRight")
    assert page.locator("pre.markdown").is_visible()
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == "Markdown"
    page.focus("[aria-label='Next page']")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.tools input').value === '2'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_landmarks_and_contrast(server: Running, browse: Callable[..., Any], demo: Path, scheme: str) -> None:
    page = browse(server.url, color_scheme=scheme)
    tree = page.locator("body").aria_snapshot()
    for line in ("banner:", 'navigation "History"', "main:", 'combobox "Quality"', 'textbox "Pages"', "status"):
        assert line in tree
    assert page.evaluate(CONTRAST) == []
    start(page, demo / "paper.pdf" if scheme == "light" else ("broken.pdf", b"%PDF-1.7\nno"))
    until_state(page, "completed" if scheme == "light" else "failed")
    if scheme == "light":
        page.wait_for_selector("figure.loaded[data-page='1']")
        tree = page.locator("body").aria_snapshot()
        for line in ('region "Source"', 'region "Result"', 'tab "Rendered" [selected]', 'img "Page 1"', "heading"):
            assert line in tree
        page.click("role=button[name=Layout]")
    assert page.evaluate(CONTRAST) == []
    nameless = page.locator("button, a, input, select, iframe, summary").evaluate_all(
        """nodes => nodes.filter(node => node.checkVisibility() && !(node.innerText || node.ariaLabel || node.title ||
             [...(node.labels ?? [])].some(label => label.innerText))).map(node => node.outerHTML)"""
    )
    assert nameless == []
    assert page.locator("#status").inner_text().endswith("Done" if scheme == "light" else "Failed")


def test_a_phone_has_room_for_it(server: Running, browse: Callable[..., Any], demo: Path) -> None:
    page = browse(server.url, viewport={"width": 360, "height": 740})
    wide = "() => document.documentElement.scrollWidth - innerWidth"
    assert page.evaluate(wide) <= 0
    start(page, demo / "paper.pdf")
    until_state(page, "completed")
    page.wait_for_selector("figure.loaded")
    assert page.evaluate(wide) <= 0


def test_a_hostile_result_stays_in_its_frame(server: Running, browse: Callable[..., Any], demo: Path) -> None:
    page = browse(server.url, "Content Security Policy")  # which speaks up although nothing would have run
    page.route("**/files/0/*.html", lambda route: route.fulfill(body=HOSTILE, content_type="text/html"))
    start(page, demo / "contract.pdf")
    until_state(page, "completed")
    frame = page.frame_locator("iframe.rendered")
    frame.locator("text=Kept text").wait_for()
    frame.locator("#trap").click()
    frame.locator("code").wait_for()  # the formula that wanted a link is shown as written
    kept = frame.locator("body").inner_html()
    for bad in ("<script", "onerror", "onload", "<svg", "<form", "<iframe", "<meta", "example.invalid", "href"):
        assert bad not in kept.replace("\\href", "")
    assert page.evaluate("() => window.hacked") is None
    allowed = page.locator("iframe.rendered").get_attribute("sandbox").split()
    assert "allow-scripts" not in allowed
    assert "allow-forms" not in allowed


def test_a_server_with_keys_asks_for_one(tmp_path: Path, browse: Callable[..., Any], demo: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with Keys(data / FILE_NAME) as keys:
        key = keys.add("browser")
    with Running(create_app(Settings.load(environ={}), data_dir=data)) as server:
        page = browse(server.url)
        page.wait_for_selector("#key-dialog[open]")
        page.fill("#key", "mineru_wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("#key-problem:not([hidden])")
        page.fill("#key", key)
        page.keyboard.press("Enter")
        page.wait_for_selector("#history-empty:not([hidden])")
        start(page, demo / "paper.pdf")  # its events are followed with the key too
        until_state(page, "completed")
        page.wait_for_selector("figure.loaded")
        assert key in page.evaluate("() => Object.values(sessionStorage)")
        assert key not in page.evaluate("() => Object.values(localStorage)")
        assert key not in page.content()
        page.goto("about:blank")


def test_the_page_is_served_under_a_strict_policy(server: Running) -> None:
    with server.client() as client:
        root = client.get("/")
        assert root.status_code == 200
        assert client.head("/").status_code == 200
        policy = dict(part.split(" ", 1) for part in root.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in root.headers["content-security-policy"]
        assert not re.search(r"<script(?![^>]*src=)|<style|style=|\son\w+=", root.text)
        for path in re.findall(r'(?:src|href)="(/[^"]+)"', root.text):
            answer = client.get(path)
            assert answer.status_code == 200, path
            assert answer.headers["content-security-policy"] == root.headers["content-security-policy"]
            again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
            assert again.status_code == 304
        assert client.get("/assets/app.js").headers["content-type"].startswith("text/javascript")
        assert client.get("/assets/vendor/temml/temml.mjs").headers["content-type"].startswith("text/javascript")
        assert client.get("/assets/../app.py").status_code == 404


def test_vendored_files_come_with_their_licence() -> None:
    notice = (web_page.WEB / "NOTICE").read_text()
    for path in (web_page.WEB / "vendor").rglob("*"):
        if path.is_file() and path.name != "LICENSE":
            assert path.name in notice
            assert (path.parent / "LICENSE").is_file()


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with server.client() as client:
        yield client


def test_pages_as_pictures(client: Client, demo: Path) -> None:
    job = client.create(demo / "contract.pdf", ("scan.png", image_bytes(text_image(["A line"]), "PNG")))["id"]
    for index, form, width in ((0, "png", 300), (0, "webp", 800), (0, "jpeg", 640), (1, "png", 500)):
        answer = client.get(f"/v1/jobs/{job}/files/{index}/pages/1.{form}", params={"width": width})
        assert answer.status_code == 200, answer.text
        image = Image.open(io.BytesIO(answer.content))
        assert abs(image.width - width) <= 1
        assert answer.headers["content-type"] == f"image/{image.format.lower()}"  # type: ignore[union-attr]
        assert "private" in answer.headers["cache-control"]


def test_what_has_no_picture_says_so(client: Client, demo: Path) -> None:
    documents = (demo / "contract.pdf", ("a.docx", docx(["Text"])), ("locked.pdf", encrypted(text_pdf(), "secret")))
    job = client.ended(client.create(*documents)["id"])["id"]

    def code(path: str) -> tuple[int, str]:
        answer = client.get(f"/v1/jobs/{job}/files/{path}")
        return answer.status_code, answer.json()["error"]["code"]

    assert code("0/pages/99.png") == (404, "file_not_found")
    assert code("1/pages/1.png") == (404, "file_not_found")
    assert code("2/pages/1.png") == (422, "password_required")
    assert code("7/pages/1.png") == (404, "file_not_found")
    assert code("0/pages/0.png") == (400, "request_invalid")
    assert code("0/pages/1.gif") == (400, "request_invalid")
    assert code("0/pages/1.png?width=99999") == (400, "request_invalid")
    assert client.get("/v1/jobs/nobody/files/0/pages/1.png").status_code == 404


def test_a_picture_that_nobody_waits_for_is_not_drawn(
    client: Client, server: Running, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = client.ended(client.create(demo / "contract.pdf")["id"])["id"]
    events = []

    async def slow(*args: Any, **kwargs: Any) -> tuple[bytes, str]:
        events.append("drawing")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            events.append("cancelled")
            raise
        return b"", ""

    monkeypatch.setattr(page_pictures, "page_image_async", slow)
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname, where.port)) as connection:
        connection.sendall(f"GET /v1/jobs/{job}/files/0/pages/1.png HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
        wait_until(lambda: events == ["drawing"])
    wait_until(lambda: events == ["drawing", "cancelled"])
