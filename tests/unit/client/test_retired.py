"""Public Azure: Batch AI is gone there, everything else works; in the shapes that Azure answers with."""

import re
from collections.abc import Callable, Iterator

import pytest
import responses
from azure.core.credentials import AccessToken

import batchhvd
from batchhvd import Horovod, JobSpec, NotFoundError, ServiceRetiredError, SpecError
from batchhvd.resources.session import Session

ARM = "https://management.azure.com"
SUBSCRIPTION = f"{ARM}/subscriptions/11111111-2222-3333-4444-555555555555"
GROUP = f"{SUBSCRIPTION}/resourcegroups/rg"
ACCOUNT = f"{SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/examplestore"
FILES = "https://examplestore.file.core.windows.net"


class Credential:
    """What azure-identity's credentials are to their callers."""

    def get_token(self, *scopes: str, **_: object) -> AccessToken:
        assert scopes == ("https://management.azure.com/.default",)
        return AccessToken("eyJ", 4_000_000_000)


@pytest.fixture
def azure() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        yield mock


@pytest.fixture
def session() -> Session:
    return batchhvd.connect(ARM, Credential(), subscription="11111111-2222-3333-4444-555555555555")


def group_document(name: str = "rg") -> dict[str, object]:
    id = f"/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/{name}"
    kind = "Microsoft.Resources/resourceGroups"
    state = {"provisioningState": "Succeeded"}
    return {"id": id, "name": name, "type": kind, "location": "eastus", "tags": {"a": "b"}, "properties": state}


def account_document() -> dict[str, object]:
    return {
        "id": ACCOUNT.removeprefix(ARM),
        "name": "examplestore",
        "location": "eastus",
        "kind": "StorageV2",
        "sku": {"name": "Standard_LRS", "tier": "Standard"},
        "properties": {"provisioningState": "Succeeded", "primaryEndpoints": {"file": f"{FILES}/"}},
    }


@pytest.mark.parametrize(
    "host",
    [
        "management.azure.com",
        "management.chinacloudapi.cn",
        "management.usgovcloudapi.net",
        "management.microsoftazure.de",
    ],
)
def test_batch_ai_is_retired_and_nobody_is_asked(host: str, azure: responses.RequestsMock) -> None:
    session = batchhvd.connect(f"https://{host}", Credential(), subscription="s")
    workspace = session.group("rg").workspace("w")
    job = workspace.experiment("e").job("j")
    spec = JobSpec(nodes=1, task=Horovod(script="/a.py"), logs="/logs")
    asked: list[Callable[[], object]] = [
        lambda: session.group("rg").create_workspace("w", location="eastus"),
        lambda: list(session.group("rg").workspaces()),
        workspace.refresh,
        workspace.exists,
        workspace.delete,
        lambda: workspace.create_cluster("c", vm_size="Standard_NC6", nodes=4),
        lambda: workspace.cluster("c").wait(timeout=5),
        lambda: workspace.experiment("e").create_job("j", spec, cluster=workspace.cluster("c")),
        lambda: job.wait(timeout=5),
        lambda: next(job.stream()),
        lambda: list(job.files()),
        job.terminate,
    ]
    for ask in asked:
        with pytest.raises(ServiceRetiredError) as caught:
            ask()
        text = str(caught.value)
        assert host in text and "2019" in text, text
        assert "batchhvd.local()" in text and "connect()" in text, text
    assert len(azure.calls) == 0


@pytest.mark.parametrize("status", [404, 409])
def test_another_endpoint_that_does_not_know_the_provider_is_retired_too(
    status: int, azure: responses.RequestsMock
) -> None:
    error = {"error": {"code": "InvalidResourceNamespace", "message": "The namespace 'Microsoft.BatchAI' is invalid."}}
    azure.get(re.compile("https://arm.example/.*"), json=error, status=status)
    session = batchhvd.connect("https://arm.example", Credential(), subscription="s")
    with pytest.raises(ServiceRetiredError, match=r"batchhvd\.local\(\)"):
        session.group("rg").workspace("w").refresh()


def test_groups_work_as_ever(azure: responses.RequestsMock, session: Session) -> None:
    azure.put(GROUP, json=group_document(), status=201)
    azure.get(GROUP, json=group_document())
    group = session.create_group("rg", location="eastus", tags={"a": "b"})
    assert azure.calls[0].request.headers["Authorization"] == "Bearer eyJ"
    assert (group.location, group.tags, group.provisioning) == ("eastus", {"a": "b"}, "succeeded")
    assert group.exists()
    assert group == session.group("RG") and hash(group) == hash(session.group("RG"))
    assert group != session.group("other")


def test_groups_are_listed_page_by_page(azure: responses.RequestsMock, session: Session) -> None:
    more = f"{SUBSCRIPTION}/page2"
    first = {"value": [group_document("a"), group_document("b")], "nextLink": more}
    azure.get(more, json={"value": [group_document("c")]})
    azure.get(f"{SUBSCRIPTION}/resourcegroups", json=first)
    groups = session.groups()
    seen = iter(groups)
    assert [next(seen).name, next(seen).name] == ["a", "b"]
    assert len(azure.calls) == 1
    assert next(seen).name == "c"
    assert [group.name for group in groups] == ["a", "b", "c"]


def test_a_group_is_deleted_and_its_end_waited_for(azure: responses.RequestsMock, session: Session) -> None:
    operation = f"{SUBSCRIPTION}/operationresults/x"
    azure.delete(GROUP, status=202, headers={"Location": operation, "Retry-After": "0"})
    azure.get(operation, status=200)
    session.group("rg").delete()
    assert [call.request.method for call in azure.calls] == ["DELETE", "GET"]


def test_deleting_what_is_gone_is_fine(azure: responses.RequestsMock, session: Session) -> None:
    error = {"error": {"code": "ResourceGroupNotFound", "message": "Resource group 'rg' could not be found."}}
    azure.delete(GROUP, json=error, status=404)
    session.group("rg").delete()
    azure.get(GROUP, json=error, status=404)
    assert not session.group("rg").exists()
    with pytest.raises(NotFoundError, match=r"group 'rg' cannot be read: .*could not be found.*create"):
        session.group("rg").refresh()


def test_storage_works_as_ever(azure: responses.RequestsMock, session: Session) -> None:
    azure.put(ACCOUNT, json=account_document())
    azure.post(f"{ACCOUNT}/listKeys", json={"keys": [{"keyName": "key1", "value": "a2V5", "permissions": "FULL"}]})
    azure.put(f"{FILES}/myshare", status=201)
    azure.get(f"{FILES}/myshare", headers={"x-ms-share-quota": "5120"})
    account = session.group("rg").create_storage_account("examplestore", location="eastus")
    share = account.create_share("myshare")
    assert account.endpoint == FILES
    assert share.quota == 5120
    mount = share.mount("data")
    assert (mount.account, mount.share, mount.path, mount.url) == (
        "examplestore",
        "myshare",
        "data",
        f"{FILES}/myshare",
    )
    sent = azure.calls[-1].request
    assert str(sent.headers["Authorization"]).startswith("SharedKey examplestore:")
    assert "a2V5" not in repr(account) + repr(share) + repr(mount) + repr(session)


def test_a_national_cloud_has_its_own_address(azure: responses.RequestsMock, session: Session) -> None:
    document = account_document()
    document["properties"] = {"primaryEndpoints": {"file": "https://examplestore.file.core.chinacloudapi.cn/"}}
    azure.get(ACCOUNT, json=document)
    account = session.group("rg").storage_account("examplestore").refresh()
    assert account.share("s").mount("m").url == "https://examplestore.file.core.chinacloudapi.cn/s"


@pytest.mark.parametrize("endpoint", ["http://management.azure.com", "http://10.0.0.1:8000", "ftp://127.0.0.1", "here"])
def test_a_token_goes_over_https_or_stays_on_this_machine(endpoint: str) -> None:
    with pytest.raises(SpecError, match="neither https nor http on this machine"):
        batchhvd.connect(endpoint, Credential(), subscription="s")


def test_a_local_token_goes_to_no_other_machine(azure: responses.RequestsMock) -> None:
    azure.get(re.compile("http://127.0.0.1:1/.*"), json={"value": [], "nextLink": "https://elsewhere.example/more"})
    azure.get("https://elsewhere.example/more", json={"value": []})
    session = batchhvd.connect("http://127.0.0.1:1", "secret-token")
    with pytest.raises(batchhvd.AccessDeniedError, match=r"not sent to elsewhere\.example"):
        list(session.groups())
    assert len(azure.calls) == 1


def test_a_subscription_is_needed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID", raising=False)
    with pytest.raises(SpecError, match="AZURE_SUBSCRIPTION_ID"):
        batchhvd.connect(ARM, Credential())
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", "from-the-environment")
    assert batchhvd.connect(ARM, Credential()).subscription == "from-the-environment"


def test_the_default_credential_is_azure_identitys(session: Session) -> None:
    from azure.identity import DefaultAzureCredential

    assert isinstance(batchhvd.connect(ARM, subscription="s")._connection.credential, DefaultAzureCredential)
