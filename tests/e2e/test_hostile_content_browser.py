"""What hostile content and hostile pages get out of a real browser in which the status page is open."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from batchhvd.wire import local_service
from tests.e2e import test_status_page_browser as status

# Whatever runs this script tells by its title what it could get hold of.
EVIL = """<!doctype html><title>quiet</title><body><script>
document.title = 'RAN ' + location.origin;
const home = 'PAGE', found = [];
for (const look of [() => document.cookie, () => JSON.stringify(sessionStorage), () => JSON.stringify(localStorage)])
  try { found.push(look()); } catch { found.push('no storage'); }
const read = (url, how) => fetch(url, {credentials: 'include', ...how}).then(got => got.text()).then(
  text => found.push('READ ' + text.slice(0, 40)), error => found.push('nothing'));
Promise.all([read(home + 'status.json'), read('/status.json'), read(home + 'session', {method: 'POST', body: '{}'}),
  read(home + 'status.json', {mode: 'no-cors'})]).then(() => { document.title = 'DONE ' + found.join('|'); });
</script><iframe src="PAGE"></iframe>"""
SVG = "<svg xmlns='http://www.w3.org/2000/svg'><script>document.documentElement.id='ran'</script></svg>"


@pytest.fixture(scope="module")
def world() -> Iterator[Any]:
    """A service with a share."""
    with status.SCREENSHOTS.world() as (folder, _experiment, _cluster, share):
        yield folder, share


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with status.SCREENSHOTS.browser(status.CHROMIUM) as found:
        yield found


@pytest.fixture
def tab(chromium: Any, world: Any) -> Iterator[Any]:
    """A tab that shows the status page."""
    context = chromium.new_context()
    opened = context.new_page()
    opened.set_default_timeout(20_000)
    opened.goto(status.SCREENSHOTS.link(world[0]))
    opened.wait_for_selector("#clusters .node")
    yield opened
    context.close()


def link(world: Any, name: str, content: str, type: str, **more: Any) -> str:
    """Uploads a file of a type and returns a link to it, as the holder of the account's key makes one."""
    from azure.storage.fileshare import ContentSettings, generate_file_sas

    folder, share = world
    client = share._client().get_file_client(name)
    client.upload_file(content.encode(), content_settings=ContentSettings(content_type=type))
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600))
    query = generate_file_sas(
        share.account.name, share.name, [name], share.account.read_key(), permission="r", expiry=ends, **more
    )
    return f"{local_service.read_endpoint(folder)}/{share.account.name}/{share.name}/{name}?{query}"


@pytest.mark.parametrize("type", ["text/html", "image/svg+xml", "application/xhtml+xml", "text/xml", "application/pdf"])
def test_an_active_file_of_a_share_is_a_download(tab: Any, world: Any, type: str) -> None:
    before = tab.url
    url = link(world, "report", EVIL if "html" in type else SVG, type)
    with tab.expect_download() as waited:
        tab.evaluate("url => { location.href = url; }", url)
    assert waited.value.url == url and tab.url == before and "RAN" not in tab.title()


def test_shown_on_purpose_it_runs_no_script_and_has_no_origin(tab: Any, world: Any) -> None:
    home = tab.url
    evil = EVIL.replace("PAGE", home)
    url = link(world, "report.html", evil, "text/html", content_disposition="inline")
    token = (world[0] / "token").read_text().strip()
    assert httpx.get(url, trust_env=False).text == evil
    tab.goto(url)
    tab.wait_for_load_state("networkidle")
    assert tab.title() == "quiet" and token not in tab.content()
    assert tab.evaluate("origin") == "null"


def test_on_the_page_s_own_name_no_file_opens(tab: Any, world: Any) -> None:
    url = link(world, "report.html", EVIL, "text/html", content_disposition="inline")
    moved = tab.url + url.partition("://")[2].partition("/")[2]
    answer = tab.goto(moved)
    assert answer.status == 404 and "RAN" not in tab.title() and "script" not in tab.content()


class _Hostile(BaseHTTPRequestHandler):
    page, cookies = b"", ""

    def do_GET(self) -> None:
        type(self).cookies += self.headers.get("Cookie", "")
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def hostile(tab: Any) -> Iterator[str]:
    """A page of somebody else, on another port of this machine."""
    _Hostile.page, _Hostile.cookies = EVIL.replace("PAGE", tab.url).encode(), ""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hostile)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_another_page_in_the_same_browser_reads_nothing_and_gets_no_cookie(tab: Any, hostile: str, world: Any) -> None:
    tab.goto(hostile)
    tab.wait_for_function("document.title.startsWith('DONE')")
    title = tab.title()
    assert title.count("nothing") == 3 and title.count("READ") == 1 and "READ <!doctype html><title>quiet" in title
    assert (world[0] / "token").read_text().strip() not in title and _Hostile.cookies == ""
    assert all(frame.url in (hostile, "") or "chrome-error" in frame.url for frame in tab.frames)  # no frame of it


def test_a_guessable_name_of_this_machine_gets_no_cookie_either(tab: Any, hostile: str) -> None:
    """Cookies go to every port of a name; the page's own name is one that nobody can guess."""
    port = hostile.rpartition(":")[2]
    for name in ("localhost", "page.localhost", "127.0.0.1"):
        tab.goto(f"http://{name}:{port}")
        tab.reload()
    assert _Hostile.cookies == ""
    assert Path(tab.url.partition("://")[2]).parts  # it was really shown
