"""The status page as HTTP: what everybody gets, what only the token opens, and what the one answer tells."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import pytest

from batchhvd.cli import main as cli
from batchhvd.service.http import limits
from batchhvd.service.http.exchange import Here
from batchhvd.service.status import summary, verdict
from batchhvd.service.store.records import Store
from batchhvd.wire.facts import causes
from tests.support.site import Site


@pytest.fixture(scope="module")
def lived_in(start: Any, poll: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service with a cluster of two nodes, a job that failed, one that runs on both, and two that wait."""
    running = start(tmp_path_factory.mktemp("the pagé"))
    world = World(running, poll)
    world.job("failing", "echo '<img src=x onerror=alert(1)>'; exit 3")
    world.reach("failing", "failed")
    world.job("busy", "sleep 60", nodes=2)
    world.reach("busy", "running")
    world.job("later", "true", priority="low")
    world.job("sooner", "true", priority="high")
    yield world
    running.call("POST", f"{world.experiment}/jobs/busy/terminate")
    assert running.stop() == 0


class World:
    """A workspace with what a job needs."""

    def __init__(self, running: Any, poll: Any) -> None:
        self.running, self.poll = running, poll
        self.group = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g.1"
        self.workspace = f"{self.group}/providers/Microsoft.BatchAI/workspaces/w"
        self.experiment = f"{self.workspace}/experiments/e"
        scale = {"manual": {"targetNodeCount": 2}}
        user = {"adminUserName": "me", "adminUserPassword": "hidden-password"}
        properties = {"vmSize": "STANDARD_D1", "userAccountSettings": user, "scaleSettings": scale}
        account = f"{self.group}/providers/Microsoft.Storage/storageAccounts/account"
        kind = {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "location": "eastus"}
        for path, body in (
            (self.group, {"location": "eastus"}),
            (self.workspace, {"location": "eastus"}),
            (self.experiment, None),
            (f"{self.workspace}/clusters/c", {"properties": properties}),
            (account, kind),
        ):
            assert running.call("PUT", path, body).status_code in (200, 201, 202)
        self.key = running.call("POST", f"{account}/listKeys").json()["keys"][0]["value"]
        (running.root / "shares" / "account" / "share").mkdir(parents=True)

    def job(self, name: str, command: str, nodes: int = 1, priority: str = "normal") -> None:
        mount = {
            "accountName": "account",
            "azureFileUrl": f"{self.running.url}/account/share",
            "relativeMountPath": "m",
            "credentials": {"accountKey": self.key},
        }
        properties = {
            "cluster": {"id": f"{self.workspace}/clusters/c"},
            "nodeCount": nodes,
            "schedulingPriority": priority,
            "customToolkitSettings": {"commandLine": command},
            "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m",
            "mountVolumes": {"azureFileShares": [mount]},
            "secrets": [{"name": "WORD", "value": "hidden-word"}],
        }
        path = f"{self.experiment}/jobs/{name}"
        assert self.running.call("PUT", path, {"properties": properties}).status_code == 202

    def reach(self, name: str, state: str) -> None:
        self.poll(lambda: self.summary()["jobs"] and self.find(name)["state"] == state)

    def summary(self) -> Any:
        return self.running.call("GET", f"{self.running.url}/status.json").json()

    def find(self, name: str) -> Any:
        return next(job for job in self.summary()["jobs"] if job["name"] == name)


@pytest.fixture(scope="module")
def site(lived_in: Any) -> Iterator[Site]:
    """A browser with a session."""
    found = Site(lived_in.running)
    assert found.enter().status_code == 204
    yield found
    found.client.close()


def test_the_page_is_given_to_whoever_knows_its_name_and_holds_nothing(lived_in: Any, site: Site) -> None:
    name = {"Host": site.host}
    for path, kind in (("/", "html"), ("/page.css", "css"), ("/page.js", "javascript")):
        got = httpx.get(lived_in.running.url + path, headers=name, trust_env=False)
        assert got.status_code == 200 and got.headers["content-type"] == f"text/{kind}; charset=utf-8"
        for word in (lived_in.running.token, "failing", lived_in.key):
            assert word not in got.text
    head = httpx.head(lived_in.running.url, headers=name, trust_env=False)
    assert head.status_code == 200 and head.content == b""


def test_its_policy_lets_only_its_own_script_and_style_run(site: Site) -> None:
    for path in ("/", "/page.js", "/status.json", "/session", "/nothing"):
        got = site.get(path)
        policy = dict(part.strip().split(" ", 1) for part in got.headers["content-security-policy"].split(";"))
        for name in ("default-src", "base-uri", "form-action", "frame-ancestors"):
            assert policy[name] == "'none'"
        for name in ("script-src", "style-src", "connect-src"):
            assert policy[name] == "'self'"
        assert "unsafe" not in str(policy) and "sha256" not in str(policy)
        assert got.headers["referrer-policy"] == "no-referrer" and got.headers["x-content-type-options"] == "nosniff"
    html, script = site.get("/").text, site.get("/page.js").text + site.get("/sweep.js").text
    assert re.findall(r"""(?:src|href|action)=["'](?!data:)(.*?)["']""", html) == ["/page.css", "/sweep.js", "/page.js"]
    assert not re.search(r"<script>|<style>| style=|\son\w+=", html) and "innerHTML" not in script


def test_the_page_has_a_name_that_only_the_secret_tells(lived_in: Any, site: Site) -> None:
    assert re.fullmatch(r"page-[0-9a-f]{24}\.localhost:\d+", site.host)
    for host in ("page.localhost", "page-000000000000000000000000.localhost", f"x.{site.host}", "localhost.evil"):
        got = httpx.get(lived_in.running.url, headers={"Host": host}, trust_env=False)
        assert (got.status_code, got.json()["error"]["code"]) == (403, "HostNotAllowed")
    plain = httpx.get(lived_in.running.url, trust_env=False)
    assert (plain.status_code, plain.json()["error"]["code"]) == (404, "StatusPageElsewhere")
    assert "batchhvd status --open" in plain.text


def test_the_page_s_host_serves_no_file_and_no_operation(lived_in: Any, site: Site) -> None:
    token = {"Authorization": f"Bearer {lived_in.running.token}"}
    link = _log_link(lived_in)
    assert httpx.get(link, trust_env=False).status_code == 200
    path = link.partition(lived_in.running.url)[2]
    for method, wanted in (
        ("GET", path),
        ("GET", "/account/share?restype=share"),
        ("GET", "/subscriptions?api-version=2018-05-01"),
        ("PUT", f"{lived_in.group}?api-version=2018-05-01"),
        ("POST", f"{lived_in.experiment}/jobs/busy/terminate?api-version=2018-05-01"),
        ("POST", "/status.link"),
        ("POST", "/x/oauth2/token"),
    ):
        assert site.client.request(method, wanted, headers=token).status_code == 404, wanted
    assert lived_in.find("busy")["state"] == "running"


def _log_link(lived_in: Any) -> str:
    query = "outputdirectoryid=stdouterr&directory=.&linkexpiryinminutes=5&api-version=2018-05-01"
    listed = lived_in.running.call("POST", f"{lived_in.experiment}/jobs/failing/listOutputFiles?{query}").json()
    return str(next(entry["downloadUrl"] for entry in listed["value"] if entry["name"] == "stdout.txt"))


def test_a_code_opens_one_session_once(lived_in: Any) -> None:
    first = Site(lived_in.running)
    assert first.get("/status.json").status_code == 401
    for wrong in ("x", lived_in.running.token):
        assert first.enter(wrong).status_code == 403
    opened = first.enter()
    assert opened.status_code == 204 and opened.content == b""
    facts = opened.headers["set-cookie"].split("; ")
    assert facts[1:] == ["Path=/", "HttpOnly", "SameSite=Strict"] and first.code not in facts[0]
    assert first.get("/status.json").status_code == 200
    second = Site(lived_in.running)
    assert second.enter(first.code).status_code == 403 and second.get("/status.json").status_code == 401
    for body in (b"", b"[]", b"{", b'{"code": 1}'):
        assert second.client.post("/session", content=body).status_code in (400, 403)


def test_a_session_opens_the_page_only_and_a_token_no_session(lived_in: Any, site: Site) -> None:
    cookie = site.client.headers["Cookie"]
    session = cookie.partition("=")[2]
    url = f"{lived_in.running.url}/status.json"
    for headers in ({"Cookie": cookie}, {"Authorization": f"Bearer {session}"}):
        assert httpx.get(url, headers=headers, trust_env=False).status_code == 401
    for text in (lived_in.running.token, f"{session}0", f"9{session}", "1.x", ""):
        forged = {"Host": site.host, "Cookie": f"batchhvd={text}"}
        assert httpx.get(url, headers=forged, trust_env=False).status_code == 401


def test_the_page_reads_logs_as_text_in_pieces(lived_in: Any, site: Site) -> None:
    job = f"{lived_in.experiment}/jobs/failing"
    listed = {entry["name"]: entry["size"] for entry in site.get("/logs", job=job).json()["files"]}
    text = "<img src=x onerror=alert(1)>\n"
    assert listed["stdout.txt"] == len(text)
    got = site.get("/log", job=job, file="stdout.txt", **{"from": "5"})
    assert got.text == text[5:] and got.headers["content-type"] == "text/plain; charset=utf-8"
    assert site.get("/log", job=job, file="stdout.txt", **{"from": "999"}).status_code == 416
    for file, start in (("../stdout.txt", "0"), ("", "0"), ("stdout.txt", "²"), ("stdout.txt", "-1")):
        assert site.get("/log", job=job, file=file, **{"from": start}).status_code == 400
    assert site.get("/log", job=job, file="..", **{"from": "0"}).status_code in (400, 404)
    assert site.get("/logs", job=lived_in.group).status_code == 404
    path = unquote(urlsplit(_log_link(lived_in)).path)
    (lived_in.running.root / "shares" / path[1:]).with_name("large.txt").write_bytes(b"x" * (limits.PAGE_LOG_BYTES + 9))
    sizes = [len(site.get("/log", job=job, file="large.txt", **{"from": at}).content) for at in ("0", str(1 << 20))]
    assert sizes == [limits.PAGE_LOG_BYTES, 9]


def test_the_summary_needs_the_token_and_an_own_name(lived_in: Any) -> None:
    url = f"{lived_in.running.url}/status.json"
    assert httpx.get(url, trust_env=False).status_code == 401
    assert httpx.get(url, headers={"Authorization": "Bearer wrong"}, trust_env=False).status_code == 401
    for path in ("/", "/status.json"):
        host = {"Host": "evil.example"}
        got = lived_in.running.call("GET", lived_in.running.url + path, **host)
        assert (got.status_code, got.json()["error"]["code"]) == (403, "HostNotAllowed")
    posted = lived_in.running.call("POST", url)
    assert posted.status_code in (400, 404, 405)


def test_what_the_summary_tells(lived_in: Any) -> None:
    found = _when_looked_at(lived_in, "sooner")
    assert found["service"]["engine"] == "processes" and found["service"]["version"] and found["service"]["time"]
    (cluster,) = found["clusters"]
    assert (cluster["name"], cluster["group"], cluster["workspace"], cluster["scale"]) == ("c", "g.1", "w", "2")
    assert [(node["state"], node["job"]) for node in cluster["nodes"]] == [("running", "busy")] * 2
    jobs = {job["name"]: job for job in found["jobs"]}
    assert list(jobs) == ["failing", "busy", "later", "sooner"] and found["jobsLeftOut"] == 0
    assert {name: job["queue"] for name, job in jobs.items()} == {
        "failing": None,
        "busy": None,
        "sooner": 1,
        "later": 2,
    }
    assert sorted(jobs["busy"]["on"]) == sorted(node["name"] for node in cluster["nodes"]) and not jobs["failing"]["on"]
    assert jobs["sooner"]["verdict"]["cause"] == "waiting" and "1 node" in jobs["sooner"]["verdict"]["why"]
    failed = jobs["failing"]
    assert (failed["exit"], failed["verdict"]["cause"]) == (3, "rank failed") and "Next" not in failed["verdict"]
    assert failed["verdict"]["tail"] == "<img src=x onerror=alert(1)>" and "stderr.txt" in failed["verdict"]["next"]


def _when_looked_at(world: Any, waiting: str) -> Any:
    """Returns the summary once the scheduler has said of a job why it waits."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = world.summary()
        if any((job["name"], job["verdict"]["cause"]) == (waiting, "waiting") for job in found["jobs"]):
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def test_the_summary_hides_what_must_stay_hidden(lived_in: Any) -> None:
    text = lived_in.running.call("GET", f"{lived_in.running.url}/status.json").text
    for secret in (lived_in.key, "hidden-password", "hidden-word", lived_in.running.token):
        assert secret not in text


def test_many_jobs_that_have_ended_are_left_out_and_counted(tmp_path: Path) -> None:
    store = Store(tmp_path / "state é.sqlite")
    total = summary.ENDED + 7
    for number in range(total):
        state = "running" if number == 1 else "succeeded"
        id = f"/subscriptions/s/resourceGroups/g/providers/P/workspaces/w/experiments/e/jobs/j{number}"
        properties = {
            "executionState": state,
            "provisioningState": "succeeded",
            "cluster": {"id": "/clusters/c"},
            "nodeCount": 1,
            "creationTime": "2026-01-01T00:00:00.000Z",
            "customToolkitSettings": {"commandLine": "true"},
        }
        store.put(id, "jobs", "", {"id": id, "name": f"j{number}", "properties": properties})
    here = Here(store, tmp_path, None, lambda: 0.0)  # type: ignore[arg-type]  # it asks the files for nothing
    body = summary.answer(here).body
    names = [job["name"] for job in body["jobs"]]
    assert names == ["j1", *(f"j{number}" for number in range(7, total))]
    assert body["jobsLeftOut"] == 6 and body["jobs"][0]["group"] == "g"
    store.close()


@pytest.mark.parametrize(
    ("properties", "cause", "words"),
    [
        ({"executionState": "running"}, "running", "running on"),
        ({"executionState": "failed", "executionInfo": {"exitCode": 9}}, "failed", "exit code 9"),
        (
            {"executionState": "failed", "executionInfo": {"errors": [{"code": "Strange", "message": "Odd."}]}},
            "Strange",
            "Odd.",
        ),
    ],
)
def test_verdicts_without_a_known_reason(properties: Any, cause: str, words: str) -> None:
    found = verdict.of_job(properties)
    assert found["cause"] == cause and words in found["why"]


def test_earlier_attempts_stand_behind_the_last_one() -> None:
    errors: Any = [{"code": "NodeLost", "message": f"Node {at} is gone.", "details": []} for at in (2, 1)]
    found = verdict.of_job({"executionState": "running", "executionInfo": {"errors": errors}})
    assert (found["cause"], found["evidence"]) == ("running", ["before that: Node 1 is gone."])


@pytest.mark.parametrize("code", sorted(causes.CAUSE_OF_CODE))
def test_every_reason_that_the_client_explains_has_a_cause_and_a_next_step(code: str) -> None:
    errors: Any = [{"code": code, "message": "x", "details": []}]
    found = verdict.of_job({"executionState": "failed", "executionInfo": {"errors": errors}})
    assert found["cause"] == causes.CAUSE_OF_CODE[code] and found["next"]


@pytest.mark.parametrize(
    ("tail", "shown"),
    [
        ("Epoch 1\nTraceback (most recent call last):\n  x\nE: y", "Traceback (most recent call last):\n  x\nE: y"),
        ("Traceback (most recent call last):\nE: y", "Traceback (most recent call last):\nE: y"),
        ("no such\nthing", "no such\nthing"),
        ("it said: Traceback (most recent call last)", "it said: Traceback (most recent call last)"),
    ],
)
def test_a_traceback_stands_alone(tail: str, shown: str) -> None:
    error: Any = {"code": "RankFailed", "message": "x", "details": [{"name": "Tail", "value": tail}]}
    assert verdict.of_job({"executionState": "failed", "executionInfo": {"errors": [error]}})["tail"] == shown


def test_status_open_prints_the_link_and_opens_nothing_without_a_terminal(
    lived_in: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda url: pytest.fail(f"opened {url}"))
    monkeypatch.setenv("BATCHHVD_ROOT", str(lived_in.running.root))
    assert cli.run(["status", "--open"]) == 0
    link = capsys.readouterr().out.strip()
    port = lived_in.running.url.rpartition(":")[2]
    assert re.fullmatch(rf"http://page-[0-9a-f]{{24}}\.localhost:{port}/#[\w-]{{32}}", link)
    assert lived_in.running.token not in link
    assert not (lived_in.running.root / "status.html").exists()


def test_status_open_gives_the_browser_a_private_file(lived_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("BATCHHVD_ROOT", str(lived_in.running.root))
    assert cli.run(["status", "--open"]) == 0
    file = lived_in.running.root / "status.html"
    assert opened == [file.as_uri()] and lived_in.running.token not in opened[0] + file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600 and re.search(r"url=http://page-\w+\.localhost:\d+/#", file.read_text())


def test_the_token_reaches_no_log(lived_in: Any) -> None:
    with socket.create_connection(("127.0.0.1", int(lived_in.running.url.rpartition(":")[2])), 5) as line:
        line.sendall(b"GET /favicon.ico HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b" 401 " in line.recv(100)
    assert lived_in.running.token not in lived_in.running.log()


def test_colours_of_both_schemes_can_be_read(site: Site) -> None:
    """Source: WCAG 2.2, success criterion 1.4.3: text has a contrast of 4.5 to 1 at least."""
    html = site.get("/page.css").text
    light, dark = (dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", html, re.S))
    for theme in (light, dark):
        for ink in ("ink", "soft", "accent", "run", "good", "bad", "wait", "gone"):
            for ground in ("sheet", "ground"):
                assert _contrast(theme[ink], theme[ground]) >= 4.5, (ink, ground, theme)


def _contrast(first: str, second: str) -> float:
    one, other = sorted((_luminance(first), _luminance(second)))
    return (other + 0.05) / (one + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize(
    ("restarted", "cause"),
    [
        ("2026-11-28T06:00:01.000Z", "service restarted"),
        ("2026-11-28T05:59:59.000Z", "node lost"),
        ("2026-11-28T06:00:03.000Z", "node lost"),
        ("", "node lost"),
    ],
)
def test_ranks_that_are_gone_after_a_restart_are_told_from_a_lost_node(restarted: str, cause: str) -> None:
    info: Any = {
        "startTime": "2026-11-28T06:00:00.000Z",
        "endTime": "2026-11-28T06:00:02.000Z",
        "errors": [{"code": "NodeLost", "message": "Node 1 is gone.", "details": []}],
    }
    found = verdict.of_job({"executionState": "failed", "executionInfo": info}, restarted)
    assert found["cause"] == cause
    assert ("again at 06:00:01" in found["why"]) == (cause == "service restarted")
    assert found["next"].startswith(
        "Submit the job again" if cause == "service restarted" else "Look at batchhvd cluster explain"
    )
