"""Clusters of Batch AI: requests write what is wanted, and the scheduler adds and removes nodes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from attrs import evolve

from batchhvd.errors import ConflictError
from batchhvd.service.arm import operations
from batchhvd.service.batchai import redact
from batchhvd.service.batchai.kinds import alive, find, fresh, name_of, named, open_parent
from batchhvd.service.description.reader import Problem, refuse
from batchhvd.service.http import paging
from batchhvd.service.http.conditions import tagged
from batchhvd.service.http.exchange import Answer, Ask, Here
from batchhvd.service.login import account, host_key
from batchhvd.service.login.desk import ADDRESS
from batchhvd.service.mounts import model as mounts
from batchhvd.service.mounts import rules as mount_rules
from batchhvd.service.store.cluster import PrivateClusterFields, StoredCluster
from batchhvd.service.store.documents import AutoScaleSettings, ClusterProperties, ScaleSettings
from batchhvd.service.store.records import Document, Record
from batchhvd.wire.facts import additions
from batchhvd.wire.facts.states import AllocationState, ClusterNodeState, DeallocationOption

MOST_NODES = 1000
"""How many nodes one cluster may ask for."""

_COUNTS = tuple(f"{state}NodeCount" for state in ClusterNodeState)
# Source: the answers of the published examples, for requests that name no image.
_IMAGE = {"publisher": "Canonical", "offer": "UbuntuServer", "sku": "16.04-LTS", "version": "latest"}


def create(here: Here, ask: Ask) -> Answer:
    """Creates a cluster without nodes; when it exists already, only its scale changes."""
    parent, name = open_parent(here, ask, "clusters"), name_of(ask, "clusters")
    properties = _complete(ask.body["properties"])
    refuse([*_scale_problems(properties["scaleSettings"]), *_setup_problems(here, properties)])
    wanted = redact.visible(properties)
    old = find(here, parent, "clusters", name)
    if old is not None:
        return _repeat(here, ask, StoredCluster.of(alive(old)), wanted, properties)
    warnings = [*ask.warnings, *_warnings(properties)]
    private = _private(properties, wanted, warnings)
    added = {additions.FIELD: {additions.WARNINGS: warnings}} if warnings else {}
    document = fresh(here, parent, "clusters", name, {**wanted, **_empty(here), **added})
    if "setupTask" in wanted.get("nodeSetup", {}):
        document["properties"]["nodeSetup"] = _placed(wanted["nodeSetup"], document["id"])
    record = here.store.put(document["id"], "clusters", parent.id, document, {**private})
    return operations.begin(here, ask, "create", record)


def _placed(setup: Document, id: str) -> Document:
    """Returns a node setup that tells where its task's output is, relative to the prefix."""
    suffix = mounts.segment(id, str(uuid.uuid4()))  # a cluster of the same name has other logs
    return {**setup, "setupTask": {**setup["setupTask"], "stdOutErrPathSuffix": suffix}}


def _warnings(properties: ClusterProperties) -> Iterator[str]:
    image = properties.get("virtualMachineConfiguration", {}).get("imageReference", {}).get("virtualMachineImageId")
    if image:
        at = "/properties/virtualMachineConfiguration/imageReference/virtualMachineImageId"
        yield f"{at} has no effect: the nodes are this machine, not the image {image}."


def _complete(properties: Document) -> ClusterProperties:
    machine = {"imageReference": _IMAGE, **properties.get("virtualMachineConfiguration", {})}
    manual = {"manual": {"targetNodeCount": 0, "nodeDeallocationOption": DeallocationOption.REQUEUE}}
    completed = {
        **properties,
        "vmSize": properties["vmSize"].upper(),
        "scaleSettings": properties.get("scaleSettings") or manual,
        "virtualMachineConfiguration": machine,
    }
    return cast(ClusterProperties, completed)


def _empty(here: Here) -> Document:
    return {
        "allocationState": AllocationState.RESIZING,
        "allocationStateTransitionTime": here.time(),
        "currentNodeCount": 0,
        "nodeStateCounts": dict.fromkeys(_COUNTS, 0),
    }


def _private(properties: ClusterProperties, wanted: Document, warnings: Sequence[str]) -> PrivateClusterFields:
    setup = properties.get("nodeSetup", {})
    return {
        # What the scheduler keeps of the nodes: complete, because a cluster may be deleted before the first look.
        "names": [],
        "leaving": [],
        "preparing": {},
        "unusable": {},
        "keys": redact.account_keys(setup.get("mountVolumes", {})),
        "secrets": redact.secrets(setup.get("setupTask", {}).get("secrets", ())),
        "login": account.kept(properties["userAccountSettings"]),
        "asked": wanted,
        "warnings": list(warnings),
    }


def _repeat(here: Here, ask: Ask, old: StoredCluster, wanted: Document, properties: ClusterProperties) -> Answer:
    before = old.asked
    differ = sorted(name for name in {*before, *wanted} - {"scaleSettings"} if before.get(name) != wanted.get(name))
    login = old.record.private.get("login")  # earlier versions kept none
    if not differ and login is not None and not account.same(login, properties["userAccountSettings"]):
        differ = ["userAccountSettings"]  # its password or key, which no document shows
    if differ:
        raise ConflictError(
            f"The cluster '{old.name}' exists already with other settings ({', '.join(differ)}); "
            "delete it first, or use another name.",
            code="ClusterAlreadyExists",
            target=f"/properties/{differ[0]}",
        )
    return operations.begin(here, ask, "create", _rescale(here, old, wanted["scaleSettings"]))


def update(here: Here, ask: Ask) -> Answer:
    """Changes a cluster's scale; its nodes follow later."""
    old = StoredCluster.of(alive(named(here, ask, "clusters")))
    scale = ask.body.get("properties", {}).get("scaleSettings")
    if scale is None:
        return tagged(old.record.document)
    refuse(_scale_problems(scale))
    return tagged(_rescale(here, old, scale).document)


def _rescale(here: Here, old: StoredCluster, scale: ScaleSettings) -> Record:
    time = here.time()
    changed = here.store.revise(old, lambda cluster: _scaled(cluster, scale, time)) or old
    return changed.to_record()


def _scaled(cluster: StoredCluster, scale: ScaleSettings, time: str) -> StoredCluster:
    if cluster.scale == scale:
        return cluster
    return evolve(cluster, scale=scale, allocation=AllocationState.RESIZING, changed=time)


def _scale_problems(scale: ScaleSettings) -> list[Problem]:
    at = "/properties/scaleSettings"
    if len(scale) != 1:
        return [Problem(at, "must hold either manual or autoScale")]
    if "manual" in scale:
        return _number_problems(scale["manual"], f"{at}/manual")
    automatic = scale["autoScale"]
    return [*_number_problems(automatic, f"{at}/autoScale"), *_range_problems(automatic, f"{at}/autoScale")]


def _number_problems(values: Mapping[str, object], at: str) -> list[Problem]:
    return [
        Problem(f"{at}/{name}", f"must be from 0 to {MOST_NODES}, not {value}")
        for name, value in values.items()
        if isinstance(value, int) and not 0 <= value <= MOST_NODES
    ]


def _range_problems(values: AutoScaleSettings, at: str) -> list[Problem]:
    least, most, first = values["minimumNodeCount"], values["maximumNodeCount"], values["initialNodeCount"]
    if least > most:
        return [Problem(f"{at}/minimumNodeCount", f"must be at most maximumNodeCount ({most}), not {least}")]
    if first > most:
        return [Problem(f"{at}/initialNodeCount", f"must be at most maximumNodeCount ({most}), not {first}")]
    return []


def _setup_problems(here: Here, properties: ClusterProperties) -> list[Problem]:
    setup, at = properties.get("nodeSetup", {}), "/properties/nodeSetup"
    found = mount_rules.problems(here, setup.get("mountVolumes", {}), f"{at}/mountVolumes")
    if "setupTask" not in setup or found:
        return found
    known, task = mounts.every({}, properties), setup["setupTask"]
    return mount_rules.variable_problems(task, f"{at}/setupTask") + mount_rules.log_problems(
        task, known, f"{at}/setupTask"
    )


def list_logins(here: Here, ask: Ask) -> Answer:
    """Lists the nodes with the address and the port at which each can be entered."""
    cluster = StoredCluster.of(named(here, ask, "clusters"))
    return paging.page(ask, logins(here, cluster, cluster.names), *BY_NODE)


def logins(here: Here, cluster: StoredCluster | None, names: Sequence[str]) -> list[Document]:
    """Returns how to enter nodes; one that cannot be entered, or is gone, has neither address nor port."""
    there = [] if cluster is None or cluster.is_deleting else [name for name in names if name in cluster.names]
    ports = here.logins(cluster.id, there) if cluster is not None and there else {}
    key = _host_key(here, cluster) if cluster is not None and ports else ""
    return sorted((_login(name, ports.get(name), key) for name in names), key=BY_NODE[0])


def _host_key(here: Here, cluster: StoredCluster) -> str:
    return host_key.fingerprint(host_key.public_key(here.root, cluster.id, cluster.record.number))


def _login(name: str, port: int | None, key: str) -> Document:
    if port is None:
        return {"nodeId": name}
    return {"nodeId": name, "ipAddress": ADDRESS, "port": port, additions.FIELD: {additions.HOST_KEY: key}}


BY_NODE = (lambda login: str(login["nodeId"]), lambda login: login)
