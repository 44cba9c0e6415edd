"""Podman with a storage of its own, and a small image made from this machine's bash: what the tests of images use."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType

import pytest

NAME = "localhost/small:1"
_PROGRAMS = ("bash", "cat", "id", "ls", "sleep", "touch")


class Podman:
    """Podman as the tests use it.

    Attributes:
        variables: what makes it use its own storage; set them where an engine starts nodes.
        archive: an archive of the small image (OCI).
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.archive = folder, folder / "small.oci"
        self.variables = {
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
        }
        (folder / "registries.conf").write_text('[[registry]]\nlocation = "localhost"\ninsecure = true\n')
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/graph"\n'
        )
        (folder / "containers.conf").write_text(
            f'[engine]\nlock_type = "file"\ntmp_dir = "{folder}/tmp"\nevents_logger = "none"\n'
        )

    def __call__(self, *words: str) -> str:
        """Runs podman and returns what it prints."""
        command, variables = ["podman", *words], {**os.environ, **self.variables}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @property
    def containers(self) -> list[str]:
        """The names of all containers, running or not."""
        return self("ps", "--all", "--format", "{{.Names}}").split()

    @property
    def images(self) -> list[str]:
        """The names of all images, with ``<none>`` for those without a name."""
        return sorted(self("images", "--all", "--format", "{{.Repository}}:{{.Tag}}").split())


def _libraries(program: str) -> list[str]:
    told = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return re.findall(r"(/\S+) \(0x", told)


def write_root(path: Path) -> None:
    """Writes a root file system with bash and a few programs, and the libraries that they need."""
    programs = {f"bin/{name}": str(shutil.which(name)) for name in _PROGRAMS}
    libraries = {file.lstrip("/"): file for program in programs.values() for file in _libraries(program)}
    with tarfile.open(path, "w") as tar:
        for place, file in (programs | libraries).items():
            tar.add(os.path.realpath(file), place)
        link = tarfile.TarInfo("bin/sh")
        link.type, link.linkname = tarfile.SYMTYPE, "bash"
        tar.addfile(link)
        for name in ("tmp", "etc", "proc", "sys", "dev", "root"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)


class Registry(ThreadingHTTPServer):
    """A registry of one image, on loopback; it wants a user's name and password."""

    def __init__(self, archive: Path, user: str, password: str) -> None:
        self.wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self.asked: list[str] = []
        with tarfile.open(archive) as tar:
            files = {name: tar.extractfile(name) for name in tar.getnames()}
            self.files = {name: file.read() for name, file in files.items() if file is not None}
        (self.manifest,) = json.loads(self.files["index.json"])["manifests"]
        super().__init__(("127.0.0.1", 0), _RegistryHandler)

    @property
    def image(self) -> str:
        """The name of its image."""
        return f"localhost:{self.server_address[1]}/team/private:1"

    def blob(self, digest: str) -> bytes:
        return self.files[f"blobs/sha256/{digest.removeprefix('sha256:')}"]

    @contextlib.contextmanager
    def serving(self) -> Iterator[Registry]:
        """Serves while it is used."""
        thread = threading.Thread(target=self.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()
            thread.join()


class _RegistryHandler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.headers.get("Authorization") != self.server.wanted:
            return self._answer(401, b"{}", "application/json", {"WWW-Authenticate": 'Basic realm="registry"'})
        last = self.path.rpartition("/")[2]
        if "/manifests/" in self.path:
            return self._answer(
                200, self.server.blob(self.server.manifest["digest"]), self.server.manifest["mediaType"]
            )
        return self._answer(200, self.server.blob(last) if "/blobs/" in self.path else b"{}", "application/json")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, status: int, body: bytes, kind: str, more: Mapping[str, str] = MappingProxyType({})) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def reason_to_skip() -> str:
    """Returns why the tests of images cannot run here, or ""."""
    if os.geteuid() != 0:
        return "needs root: podman is tested as root"
    return "" if shutil.which("podman") else "needs podman: apt-get install podman"


@contextlib.contextmanager
def podman(folder: Path) -> Iterator[Podman]:
    """Gives podman with the small image; leaves nothing of it on the machine."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    folder.mkdir()
    found = Podman(folder)
    try:
        write_root(folder / "root.tar")
        found("import", "--quiet", "--change", "ENV WHO=image", str(folder / "root.tar"), NAME)
        found("save", "--quiet", "--format", "oci-archive", "--output", str(found.archive), NAME)
        yield found
    finally:
        with contextlib.suppress(AssertionError):
            found("rm", "--all", "--force")
        shutil.rmtree(folder, ignore_errors=True)
