"""Resource Manager and storage accounts through today's management clients, and what no client sends."""

from __future__ import annotations

import base64
import http.client
import json
import os
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.mgmt.resource.resources import ResourceManagementClient
from azure.mgmt.storage import StorageManagementClient
from azure.mgmt.storage.models import DeleteRetentionPolicy, FileServiceProperties
from azure.storage.fileshare import ShareClient, ShareServiceClient

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
ACCOUNT: Any = {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "location": "eastus"}


class Bearer(SansIOHTTPPolicy[Any, Any]):
    """Sends a fixed token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def on_request(self, request: Any) -> None:
        request.http_request.headers["Authorization"] = f"Bearer {self._token}"


def client(kind: Any, service: Any, token: str = "", subscription: str = SUBSCRIPTION) -> Any:
    policy: Any = Bearer(token or service.token)
    options: dict[str, Any] = {"use_env_settings": False, "polling_interval": 0.1, "retry_total": 0}
    return kind(object(), subscription, base_url=service.url, authentication_policy=policy, **options)


@pytest.fixture
def resources(service: Any) -> Any:
    return client(ResourceManagementClient, service)


@pytest.fixture
def storage(service: Any) -> Any:
    return client(StorageManagementClient, service)


def name(group: str) -> str:
    return group.rpartition("/")[2]


def test_a_groups_life(resources: Any, service: Any) -> None:
    groups = resources.resource_groups
    created = groups.create_or_update("My.Group_1", {"location": "eastus", "tags": {"a": "é"}})
    assert (created.name, created.location, created.tags) == ("My.Group_1", "eastus", {"a": "é"})
    assert created.properties.provisioning_state == "Succeeded"
    assert groups.check_existence("my.group_1") and not groups.check_existence("other")
    assert groups.get("MY.GROUP_1").name == "My.Group_1" in [group.name for group in groups.list()]
    assert groups.update("My.Group_1", {"tags": {"b": "2"}}).tags == {"b": "2"}
    with pytest.raises(ResourceExistsError, match="eastus"):
        groups.create_or_update("my.group_1", {"location": "westus"})
    groups.begin_delete("my.group_1").result()
    assert not groups.check_existence("My.Group_1")
    with pytest.raises(ResourceNotFoundError) as caught:
        groups.begin_delete("My.Group_1")
    assert caught.value.error is not None and caught.value.error.code == "ResourceGroupNotFound"


@pytest.mark.parametrize("wrong", ["..", "a.", "a b", "a" * 91, "é"])
def test_a_groups_name(service: Any, wrong: str) -> None:
    path = f"/subscriptions/{SUBSCRIPTION}/resourcegroups/{wrong.replace('..', '%2E%2E')}"
    assert service.call("PUT", path, {"location": "eastus"}).status_code == 400


def test_names_that_are_words_of_the_paths(service: Any) -> None:
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/Microsoft.BatchAI"
    paths = [group, f"{group}/providers/Microsoft.BatchAI/workspaces/operations"]
    paths += [f"{paths[1]}/experiments/operationresults", f"{group}/providers/Microsoft.BatchAI/workspaces/providers"]
    for path in paths:
        assert service.call("PUT", path, {"location": "eastus"}).status_code in (200, 201)
        assert service.call("GET", path).json()["id"] == path
    service.finish(service.call("DELETE", group))


def test_an_accounts_life(storage: Any, service: Any, group: str) -> None:
    accounts, place = storage.storage_accounts, name(group)
    question = {"name": "lifeaccount", "type": "Microsoft.Storage/storageAccounts"}
    assert accounts.check_name_availability(question).name_available
    created = accounts.begin_create(place, "lifeaccount", ACCOUNT).result()
    assert (created.sku.name, created.kind, created.provisioning_state) == ("Standard_LRS", "StorageV2", "Succeeded")
    assert created.primary_endpoints.file == f"{service.url}/lifeaccount/"
    taken = accounts.check_name_availability(question)
    assert (taken.name_available, taken.reason) == (False, "AlreadyExists")
    wrong = accounts.check_name_availability({**question, "name": "No-Name"})
    assert wrong.reason == "AccountNameInvalid"
    assert [account.name for account in accounts.list_by_resource_group(place)] == ["lifeaccount"]
    assert "lifeaccount" in [account.name for account in accounts.list()]
    assert accounts.get_properties(place, "LifeAccount").name == "lifeaccount"
    accounts.delete(place, "lifeaccount")
    accounts.delete(place, "lifeaccount")  # 204
    with pytest.raises(ResourceNotFoundError):
        accounts.get_properties(place, "lifeaccount")


def test_a_premium_account_serves_shares_of_nfs(storage: Any, service: Any, group: str) -> None:
    accounts, place = storage.storage_accounts, name(group)
    premium = {**ACCOUNT, "kind": "FileStorage", "sku": {"name": "Premium_LRS"}}
    created = accounts.begin_create(place, "premiumaccount", premium).result()
    assert (created.sku.name, created.sku.tier, created.kind) == ("Premium_LRS", "Premium", "FileStorage")
    key = accounts.list_keys(place, "premiumaccount").keys_property[0].value
    share = ShareClient(f"{service.url}/premiumaccount", "share", credential=key)
    share.create_share(protocols="NFS")
    assert (share.get_share_properties().protocols, share.get_share_properties().access_tier) == (["NFS"], "Premium")
    assert accounts.update(place, "premiumaccount", {"sku": {"name": "Premium_ZRS"}}).sku.name == "Premium_ZRS"
    refused = [(accounts.update, "premiumaccount", {"sku": {"name": "StandardV2_LRS"}})]
    refused += [(accounts.begin_create, "premiumaccount", ACCOUNT)]  # it would keep its kind, without a word
    refused += [(accounts.begin_create, "premiumaccount", {**premium, "sku": {"name": "StandardV2_LRS"}})]
    refused += [(accounts.begin_create, "other", {**premium, "sku": {"name": "Standard_LRS"}})]
    refused += [(accounts.begin_create, "other", {**ACCOUNT, "sku": {"name": "StandardV2_LRS"}})]
    for attempt, which, body in refused:
        with pytest.raises(HttpResponseError) as caught:
            attempt(place, which, body)
        assert caught.value.status_code == 400


def test_a_key_opens_the_shares_until_it_is_replaced(storage: Any, service: Any, group: str) -> None:
    accounts, place = storage.storage_accounts, name(group)
    accounts.begin_create(place, "keyaccount", ACCOUNT).result()
    first, second = (key.value for key in accounts.list_keys(place, "keyaccount").keys_property)
    assert len(base64.b64decode(first)) == 64 and first != second
    url = f"{service.url}/keyaccount"
    ShareClient(url, "share", credential=first).create_share()
    again = accounts.regenerate_key(place, "keyaccount", {"keyName": "key1"}).keys_property
    assert again[0].value != first and again[1].value == second
    with pytest.raises(ClientAuthenticationError):
        ShareClient(url, "share", credential=first).get_share_properties()
    ShareClient(url, "share", credential=second).get_share_properties()
    accounts.delete(place, "keyaccount")
    accounts.begin_create(place, "keyaccount", ACCOUNT).result()
    fresh = accounts.list_keys(place, "keyaccount").keys_property[0].value
    with pytest.raises(ResourceNotFoundError):  # the share went with the account
        ShareClient(url, "share", credential=fresh).get_share_properties()


def test_an_accounts_name_is_unique(storage: Any, resources: Any, service: Any, group: str) -> None:
    storage.storage_accounts.begin_create(name(group), "uniqueaccount", ACCOUNT).result()
    resources.resource_groups.create_or_update("another", {"location": "eastus"})
    with pytest.raises(ResourceExistsError) as caught:
        storage.storage_accounts.begin_create("another", "uniqueaccount", ACCOUNT)
    assert caught.value.error is not None and caught.value.error.code == "StorageAccountAlreadyTaken"
    for wrong in ("ab", "a" * 25, "Upper", "with-dash", "subscriptions"):
        with pytest.raises(HttpResponseError) as refused:
            storage.storage_accounts.begin_create("another", wrong, ACCOUNT)
        assert refused.value.error is not None
        assert (refused.value.status_code, refused.value.error.code) == (400, "AccountNameInvalid")
    resources.resource_groups.begin_delete("another").result()


def test_what_a_group_holds_goes_with_it(resources: Any, service: Any, group: str, account: tuple[str, str]) -> None:
    ShareClient(f"{service.url}/{account[0]}", "share", credential=account[1]).create_share()
    service.call("PUT", f"{group}/providers/Microsoft.BatchAI/workspaces/w", {"location": "eastus"})
    found = {(r.name, r.type) for r in resources.resources.list_by_resource_group(name(group))}
    assert found == {(account[0], "Microsoft.Storage/storageAccounts"), ("w", "Microsoft.BatchAI/workspaces")}
    assert (service.root / "shares" / account[0] / "share").is_dir()
    resources.resource_groups.begin_delete(name(group)).result()
    assert not (service.root / "shares" / account[0]).exists()
    assert account[0] not in [a.name for a in client(StorageManagementClient, service).storage_accounts.list()]


def test_another_subscription_or_token_is_refused(service: Any) -> None:
    with pytest.raises(ResourceNotFoundError) as missing:
        client(ResourceManagementClient, service, subscription=SUBSCRIPTION[:-1] + "2").resource_groups.get("x")
    assert missing.value.error is not None and missing.value.error.code == "SubscriptionNotFound"
    for token in ("wrong", service.token[:-1], service.token + "x", "9999999999.abc", "é"):
        with pytest.raises((ClientAuthenticationError, UnicodeEncodeError)):
            client(ResourceManagementClient, service, token=token).resource_groups.get("x")


def test_every_path_needs_a_token(service: Any) -> None:
    for path in ("/subscriptions", "/tenants", "/no-account", "/providers/Microsoft.BatchAI/operations"):
        answer = httpx.get(f"{service.url}{path}?api-version=2018-05-01", trust_env=False)
        assert answer.status_code == 401 and answer.json()["error"]["code"] == "AuthenticationFailed"
        assert "retry-after" not in answer.headers and "www-authenticate" not in answer.headers


FOREIGN = ["evil.example", "login.evil.example", "127.0.0.1.evil.example", "management.azure.com.x", ""]


@pytest.mark.parametrize("host", FOREIGN)
def test_a_page_that_names_us_otherwise_gets_nothing(service: Any, host: str) -> None:
    answer = service.call("GET", "/subscriptions", Host=host)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "HostNotAllowed")


@pytest.mark.parametrize("host", ["localhost:1234", "[::1]:80", "management.azure.com", "127.0.0.1"])
def test_urls_follow_the_host_that_the_client_sees(service: Any, group: str, host: str) -> None:
    for index in range(2):
        service.call("PUT", f"{group}/providers/Microsoft.BatchAI/workspaces/w{index}", {"location": "eastus"})
    headers = {"Host": host, "X-Forwarded-Proto": "https"}
    answer = service.call("GET", f"{group}/providers/Microsoft.BatchAI/workspaces?maxresults=1", **headers)
    assert answer.json()["nextLink"].startswith(f"https://{host}/subscriptions/")
    plain = {"Host": host, "X-Forwarded-Proto": "javascript"}
    answer = service.call("GET", f"{group}/providers/Microsoft.BatchAI/workspaces?maxresults=1", **plain)
    assert answer.json()["nextLink"].startswith(f"http://{host}/subscriptions/")


def test_an_operation_that_is_not_there(service: Any) -> None:
    missing = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.BatchAI/locations/x/operations/none"
    assert service.call("GET", missing).json()["error"]["code"] == "OperationNotFound"


def grant(service: Any, path: str, **form: str) -> httpx.Response:
    return httpx.post(service.url + path, data=form, trust_env=False)


TOKENS = ["/tenant-1/oauth2/token", "/common/oauth2/v2.0/token", "/adfs/oauth2/token", "/acc/oauth2/token"]


@pytest.mark.parametrize("path", TOKENS)
def test_the_token_endpoints(service: Any, path: str) -> None:
    form = {"grant_type": "client_credentials", "client_id": "any", "resource": "https://management.core.windows.net/"}
    answer = grant(service, path, client_secret=service.token, **form)
    assert answer.status_code == 200 and answer.json()["token_type"] == "Bearer"
    token = answer.json()["access_token"]
    assert token != service.token and int(answer.json()["expires_in"]) > 3600
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{service.url}/subscriptions?api-version=2016-06-01"
    [subscription] = httpx.get(url, headers=headers, trust_env=False).json()["value"]
    assert (subscription["subscriptionId"], subscription["state"]) == (SUBSCRIPTION, "Enabled")
    refused = grant(service, path, client_secret="wrong", **form)
    assert refused.status_code == 401 and refused.json()["error"] == "invalid_client"
    assert grant(service, path, grant_type="password", client_secret=service.token).status_code == 400


def test_where_the_endpoints_are(service: Any) -> None:
    answer = httpx.get(f"{service.url}/metadata/endpoints?api-version=2015-01-01", trust_env=False)
    assert answer.json()["authentication"]["loginEndpoint"] == f"{service.url}/adfs"


@pytest.mark.parametrize("query", ["maxresults=", "maxresults=x", "maxresults=9999", "$skiptoken=eA==", "$skiptoken=!"])
def test_pages_that_cannot_be(service: Any, group: str, query: str) -> None:
    answer = service.call("GET", f"/subscriptions/{SUBSCRIPTION}/resourcegroups?{query}")
    assert (answer.status_code, answer.json()["error"]["target"]) == (400, query.partition("=")[0])


def test_versions(service: Any, group: str) -> None:
    workspaces = f"{group}/providers/Microsoft.BatchAI/workspaces"
    answer = service.call("GET", f"{workspaces}?api-version=2018-03-01")
    assert answer.json()["error"]["code"] == "InvalidApiVersionParameter" and "2018-05-01" in answer.text
    bare = httpx.get(service.url + workspaces, headers={"Authorization": f"Bearer {service.token}"}, trust_env=False)
    assert bare.json()["error"]["code"] == "MissingApiVersionParameter"


ODD = [
    b"{",
    b"\xff",
    b"NaN",
    b"[1]",
    b'"x"',
    b'{"location": "\\ud800"}',
    b'{"location": "\\u0000"}',
    b"[" * 100_000,
    b"",
]


@pytest.mark.parametrize("body", ODD, ids=lambda body: repr(body[:20]))
def test_a_body_that_is_no_document(service: Any, group: str, body: bytes) -> None:
    answer = service.call("PUT", f"{group}/providers/Microsoft.BatchAI/workspaces/w", body)
    assert answer.status_code == 400 and answer.json()["error"]["code"] in ("InvalidRequestContent", "InvalidField")


def test_a_body_that_is_too_large(service: Any, group: str) -> None:
    answer = service.call("PUT", group, b'{"location": "' + b"x" * 5_000_000 + b'"}')
    assert answer.status_code == 413


def test_a_head_and_an_empty_answer_have_no_body(service: Any, group: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc)
    headers = {"Authorization": f"Bearer {service.token}"}
    for method, path, status in (("HEAD", group, 204), ("HEAD", group + "x", 404), ("GET", group, 200)):
        connection.request(method, path + "?api-version=2018-05-01", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == status and bool(body) == (method == "GET")
    assert json.loads(body)["name"] == name(group)


def test_a_filter_narrows_or_is_refused_and_is_never_dropped(resources: Any, service: Any) -> None:
    mine, other = (f"flt{os.urandom(3).hex()}" for _ in range(2))
    for name in (mine, other):
        resources.resource_groups.create_or_update(name, {"location": "eastus", "tags": {"Owner": name}})
        url = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{name}/providers/Microsoft.Storage/storageAccounts/{name}"
        body = {"location": "eastus", "sku": {"name": "Standard_LRS"}, "kind": "StorageV2"}
        assert service.call("PUT", f"{url}?api-version=2023-01-01", body).status_code in (200, 202)
    found = [each.name for each in resources.resources.list(filter=f"resourceGroup eq '{mine.upper()}'")]
    assert found == [mine]
    kind = "resourceType eq 'Microsoft.Storage/storageAccounts'"
    assert [each.name for each in resources.resources.list(filter=f"{kind} and name eq '{other}'")] == [other]
    assert not list(resources.resources.list(filter="resourceType eq 'Microsoft.Compute/virtualMachines'"))
    tagged = resources.resource_groups.list(filter=f"tagName eq 'owner' and tagValue eq '{mine}'")
    assert [each.name for each in tagged] == [mine]
    for text in ("substringof('x', name)", "name ne 'x'", "colour eq 'red'", "name eq 'x' or name eq 'y'"):
        with pytest.raises(HttpResponseError) as caught:
            list(resources.resources.list(filter=text))
        assert caught.value.status_code == 400 and "$filter is understood only as" in str(caught.value)
    with pytest.raises(HttpResponseError, match="names name twice"):
        list(resources.resources.list(filter="name eq 'x' and name eq 'y'"))
    assert [each.name for each in resources.resources.list(filter=f"name eq '{mine}' and location eq 'East US'")] == [
        mine
    ]
    for path in ("providers/Microsoft.BatchAI/workspaces", "providers/Microsoft.Storage/storageAccounts"):
        for option in ("$filter=name eq 'x'", "$top=1", "$Skip=1"):
            answer = service.call("GET", f"/subscriptions/{SUBSCRIPTION}/{path}?{option}")
            assert answer.status_code == 400 and "is not supported here" in answer.text, (path, option)
    with pytest.raises(HttpResponseError, match="top is not supported"):
        list(resources.resources.list(top=1))
    for name in (mine, other):
        resources.resource_groups.begin_delete(name).result()


def test_deleted_shares_are_kept_for_as_many_days_as_the_account_says(
    service: Any, resources: Any, storage: Any
) -> None:
    group, account = f"g{os.urandom(4).hex()}", f"kept{os.urandom(4).hex()}"
    resources.resource_groups.create_or_update(group, {"location": "eastus"})
    storage.storage_accounts.begin_create(group, account, ACCOUNT).result()
    services = storage.file_services
    assert not services.get_service_properties(group, account).share_delete_retention_policy.enabled
    properties: Any = FileServiceProperties  # its overloads do not name the fields of its properties
    policy = properties(share_delete_retention_policy=DeleteRetentionPolicy(enabled=True, days=3))
    set_now = services.set_service_properties(group, account, policy)
    assert (set_now.name, set_now.share_delete_retention_policy.days) == ("default", 3)
    [listed] = services.list(group, account).value
    assert listed.share_delete_retention_policy.enabled
    key = storage.storage_accounts.list_keys(group, account).keys_property[0].value
    files = ShareServiceClient(f"{service.url}/{account}", key, retry_total=0, use_env_settings=False)
    files.create_share("gone").create_directory("d")
    files.delete_share("gone")
    # What was deleted under the rule stays, whatever the rule is later.
    off = properties(share_delete_retention_policy=DeleteRetentionPolicy(enabled=False))
    services.set_service_properties(group, account, off)
    [deleted] = files.list_shares(include_deleted=True)
    assert (deleted.deleted, deleted.remaining_retention_days) == (True, 3)
    share = files.undelete_share("gone", deleted.version or "")
    assert [entry.name for entry in share.list_directories_and_files()] == ["d"]
    files.delete_share("gone")
    assert not list(files.list_shares(include_deleted=True))


POLICY = "shareDeleteRetentionPolicy"


@pytest.mark.parametrize(
    ("properties", "status", "place"),
    [
        ({POLICY: {"enabled": True}}, 400, f"/properties/{POLICY}/days"),
        ({POLICY: {"enabled": True, "days": 366}}, 400, f"/properties/{POLICY}/days"),
        ({POLICY: {"enabled": "yes"}}, 400, f"/properties/{POLICY}/enabled"),
        ({"cors": {"corsRules": [{}]}}, 501, "/properties/cors"),
        ({"protocolSettings": {"smb": {"versions": "SMB3.0"}}}, 501, "/properties/protocolSettings"),
    ],
)
def test_file_services_say_what_they_do_not_do(
    service: Any, resources: Any, storage: Any, properties: Any, status: int, place: str
) -> None:
    group, account = f"g{os.urandom(4).hex()}", f"kept{os.urandom(4).hex()}"
    resources.resource_groups.create_or_update(group, {"location": "eastus"})
    storage.storage_accounts.begin_create(group, account, ACCOUNT).result()
    path = f"/resourceGroups/{group}/providers/Microsoft.Storage/storageAccounts/{account}/fileServices/default"
    head = {"Authorization": f"Bearer {service.token}"}
    url = f"{service.url}/subscriptions/{SUBSCRIPTION}{path}?api-version=2023-01-01"
    answer = httpx.put(url, headers=head, json={"properties": properties}, trust_env=False)
    assert (answer.status_code, answer.json()["error"]["target"]) == (status, place)
    assert httpx.get(url.replace("/default", "/other"), headers=head, trust_env=False).status_code == 404
