"""The status page in a real browser without a window, beside a real service with real jobs."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from batchhvd import CustomToolkit, JobSpec, sweeps
from batchhvd.resources.values.metrics import Metrics

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("there is no Chromium on this machine", allow_module_level=True)

REPOSITORY = Path(__file__).parents[2]
HOSTILE = """
import sys, time
print("<img src=x onerror=alert(1)><script>document.title='taken'</script>")
for epoch in (1, 2, 3):
    loss = 1 / epoch
    print(f"Epoch {epoch}/3  loss {loss:.4f}  accuracy 0.5  val_loss {1.1 * loss:.4f}  100 images/s  1.0 s", flush=True)
sys.exit("</pre><b>bold</b>") if "fail" in sys.argv else time.sleep(60)
"""


def script() -> ModuleType:
    """The script that takes the pictures, as a module: it knows how to bring up a world and a browser."""
    spec = importlib.util.spec_from_file_location("screenshots", REPOSITORY / "docs" / "screenshots.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCREENSHOTS = script()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a service with a job that failed and one that runs."""
    with SCREENSHOTS.world() as (folder, experiment, cluster, share):
        path = tmp_path_factory.mktemp("a scrípt") / "hostile.py"
        path.write_text(HOSTILE, encoding="utf-8")
        share.upload(path)
        mount = share.mount("m")
        for name in ("fail", "stay"):
            task = CustomToolkit(f"python3 {mount / 'hostile.py'} {name}")
            spec = JobSpec(nodes=1, task=task, mounts=[mount], logs=mount / "logs")
            job = experiment.create_job(f"to_{name}", spec, cluster=cluster)
            job.wait("ended" if name == "fail" else "running", timeout=30)
        yield folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with SCREENSHOTS.browser(CHROMIUM) as found:
        yield found


@pytest.fixture
def wrong() -> Iterator[list[str]]:
    """What the page's console complains about, and what it asks of others: each fails the test."""
    found: list[str] = []
    yield found
    assert found == []


@pytest.fixture
def page(chromium: Any, root: Path, wrong: list[str]) -> Iterator[Any]:
    """The page as its link opens it."""
    context = chromium.new_context(viewport={"width": 1100, "height": 800})
    opened = context.new_page()

    def complain(message: Any) -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    def dismiss(dialog: Any) -> None:
        wrong.append(dialog.message)
        dialog.dismiss()

    def ask(asked: Any) -> None:
        if not asked.url.startswith((home, "data:")) and asked.url != "about:blank":
            wrong.append(asked.url)

    link = SCREENSHOTS.link(root)
    home = link.partition("#")[0]
    opened.set_default_timeout(20_000)
    opened.on("console", complain)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("dialog", dismiss)
    opened.on("request", ask)
    opened.goto(link)
    yield opened
    context.close()


def test_it_shows_nodes_verdict_curve_and_log_and_hostile_text_as_text(page: Any, root: Path) -> None:
    page.get_by_role("button", name="to_fail").click()
    page.wait_for_selector("#why.failed")
    assert "rank failed" in page.inner_text("#why") and "Next: " in page.inner_text("#why")
    page.wait_for_selector("text=Epoch 3/3 >> nth=0")
    assert "<img src=x onerror=alert(1)>" in page.inner_text("#log") and "</pre><b>" in page.inner_text("#tail")
    assert page.query_selector("#log *") is None and page.query_selector("img, b >> text=bold") is None
    assert page.get_by_role("img", name=re.compile("loss after epoch 3: training 0.333, validation 0.367")).is_visible()
    assert page.locator("#clusters .node.running").count() == 1 and page.locator("#clusters .node.idle").count() == 3
    assert "1 running" in page.title() and "taken" not in page.title()
    page.select_option("#file", "stderr.txt")
    page.locator("#log", has_text="</pre><b>bold</b>").wait_for()


def test_the_code_leaves_the_address_and_the_session_outlives_a_reload(page: Any, root: Path) -> None:
    page.wait_for_selector("#jobs button")
    token = (root / "token").read_text().strip()
    assert "#" not in page.url and token not in page.content()
    assert page.evaluate("[document.cookie, sessionStorage.length, localStorage.length]") == ["", 0, 0]
    page.reload()
    page.wait_for_selector("#jobs button")
    cookies = page.context.cookies()
    assert [(c["name"], c["httpOnly"], c["sameSite"]) for c in cookies] == [("batchhvd", True, "Strict")]
    assert token not in str(cookies)


REPORT = """echo '{ "epoch": 1, "loss": {loss}, "accuracy": NaN }' >> $AZ_BATCHAI_STDOUTERR_DIR/metrics.jsonl"""


def test_a_sweep_is_one_picture_with_a_table_beside_it(chromium: Any) -> None:
    with SCREENSHOTS.world() as (folder, experiment, cluster, share):
        mount = share.mount("m")
        spec = JobSpec(nodes=1, task=CustomToolkit(REPORT), mounts=[mount], logs=mount / "logs")
        space = sweeps.points(
            [{"loss": 0.5, "kind": "<b>x</b>"}, {"loss": 0.2, "kind": "y"}, {"loss": 0.9, "kind": "y"}]
        )
        experiment.sweep("three", spec, space, cluster=cluster).run(timeout=60)
        shown = SCREENSHOTS.opened(chromium, folder, {"width": 400, "height": 800})
        shown.locator("#sweep-table td", has_text="0.200").wait_for(timeout=20_000)
        assert "3 trials here: 3 succeeded. Best loss: 0.200 of three_0002" in shown.inner_text("#sweep-told")
        rows = shown.locator("#sweep-table tr").all_inner_texts()
        assert [row.split("\t")[0].strip() for row in rows] == ["trial", "three_0002", "three_0001", "three_0003"]
        assert "<b>x</b>" in rows[2] and shown.query_selector("#sweep b") is None
        assert shown.locator("#sweep-pictures svg[role=img]").count() == 2
        assert shown.get_by_role("img", name="Parallel coordinates of").locator("polyline").count() == 3
        assert shown.evaluate("document.documentElement.scrollWidth") == 400
        shown.close()


def test_it_works_with_the_keyboard(page: Any) -> None:
    page.wait_for_selector("#jobs button[aria-current]")
    page.keyboard.press("Tab")
    focus = "document.activeElement.querySelector('strong')?.textContent ?? document.activeElement.id"
    assert page.evaluate(focus) == "to_stay"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focus) == "to_fail"
    page.keyboard.press("Enter")
    page.wait_for_selector("#why.failed")
    page.locator("#jobs button[aria-current]", has_text="to_fail").wait_for()
    assert page.evaluate(focus) == "to_fail"  # the list was made anew under it
    page.evaluate("document.activeElement.marked = true")
    page.evaluate("data.jobs.push({...data.jobs[0], id: data.jobs[0].id + '-new', name: 'new'}); show()")
    assert page.evaluate("document.activeElement.marked")  # the same element, while another came above it
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "log"


def test_without_a_session_it_asks_for_a_link(page: Any, root: Path, wrong: list[str]) -> None:
    page.wait_for_selector("#jobs button")
    page.context.clear_cookies()
    page.reload()
    box = page.get_by_role("textbox", name="Link")
    box.fill((root / "token").read_text())  # the token itself opens nothing here
    page.keyboard.press("Enter")
    page.get_by_text("This link was used already, or is too old.").wait_for()
    box.fill(SCREENSHOTS.link(root))
    page.keyboard.press("Enter")
    page.wait_for_selector("#jobs button")
    assert page.locator("#ask").is_hidden()
    assert {text.partition(" (")[0].rpartition(" ")[2] for text in wrong} == {"401", "403"}  # as it should
    wrong.clear()


def test_it_fits_a_phone_and_a_desk_in_light_and_dark(page: Any) -> None:
    page.wait_for_selector("#curves svg")
    for width, scheme in ((360, "dark"), (1400, "light")):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (int(re.findall(r"\d+", ground)[0]) < 60) == (scheme == "dark")


KERAS2 = "".join(
    f"Epoch {epoch}/2\n\n 1/4 [=>....] - ETA: 3s - loss: 9.0 - acc: 0.1\r4/4 [=====] - 1s 30ms/step - loss: {loss}"
    f" - acc: 0.5 - val_loss: 2.5e-1 - val_acc: 0.25\n"
    for epoch, loss in ((1, 0.75), (2, 0.5))
)
TRAINER = "".join(f"Epoch {epoch}/2  loss {1 / epoch:.4f}  val_accuracy 0.5  90 images/s  2.0 s\n" for epoch in (1, 2))


READ = "log => { const c = new Curve(); log.split('\\n').forEach(line => c.feed(line)); return c.rows(); }"


def test_its_curves_are_those_of_the_client(page: Any) -> None:
    two_ranks = (REPOSITORY / "tests" / "data" / "keras3-two-ranks.txt").read_text(encoding="utf-8")
    for log in (KERAS2, TRAINER, two_ranks):
        rows, expected = page.evaluate(READ, log), Metrics._read(log)
        assert [row["epoch"] for row in rows] == [record["epoch"] for record in expected]
        for row, record in zip(rows, expected, strict=True):
            for name in set(record) & {"loss", "accuracy", "val_loss", "val_accuracy"}:
                # The client also makes something of bars that were torn; what came whole is the same.
                assert row[name] == pytest.approx(record[name], rel=1e-6 if name.startswith("val_") else 0.05), name
    line = '{"epoch": 1, "loss": 0.5, "seconds": 3, "ranks": 4}'
    assert page.evaluate(READ, "{broken\n{}\n" + line) == [{"epoch": 1, "loss": 0.5}]
    assert [row["loss"] for row in page.evaluate(READ, KERAS2 + KERAS2.replace("0.75", "0.25"))] == [0.25, 0.5]  # again
