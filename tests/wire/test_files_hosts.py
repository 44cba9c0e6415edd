"""The whole service under names of accounts below localhost, beside the path style."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import ShareClient

from tests.wire.files.conftest import CLIENT


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolves every name to the loopback interface, as many systems do with those below localhost."""
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: look_up("127.0.0.1", *rest, **more))


@pytest.mark.usefixtures("resolver")
def test_an_account_has_a_host_of_its_own(service: Any, account: tuple[str, str]) -> None:
    name, key = account
    credential = {"account_name": name, "account_key": key}  # the client knows names below core.windows.net only
    port = service.url.rpartition(":")[2]
    styles = [f"http://{name}.file.localhost:{port}", f"http://127.0.0.1:{port}/{name}"]
    by_host, by_path = (ShareClient(url, "share", credential=credential, **CLIENT) for url in styles)
    by_host.create_share()
    by_host.get_file_client("one").upload_file(b"data")
    assert by_path.get_file_client("one").download_file().readall() == b"data"
    for client, source in ((by_path, by_host), (by_host, by_path)):
        client.get_file_client("two").start_copy_from_url(source.get_file_client("one").url)
    stranger = ShareClient(
        f"http://{name}.file.localhost.evil.example:{port}", "share", credential=credential, **CLIENT
    )
    with pytest.raises(HttpResponseError) as refused:
        stranger.get_share_properties()
    assert refused.value.status_code == 403
