"""Clusters of Batch AI: the wishes are written here, the scheduler gives and takes the nodes."""

from __future__ import annotations

from typing import Any

from batchhvd.errors import ConflictError
from batchhvd.service.batchai import redact
from batchhvd.service.batchai.kinds import MOST_NODES, alive, find, fresh, name_of, named, open_parent
from batchhvd.service.description.schema import Problem, refuse
from batchhvd.service.http import paging
from batchhvd.service.http.exchange import Answer, Ask, Document, Here
from batchhvd.service.mounts import model as mounts
from batchhvd.service.mounts import rules as mount_rules
from batchhvd.service.store.records import Record

_COUNTS = ("runningNodeCount", "idleNodeCount", "unusableNodeCount", "preparingNodeCount", "leavingNodeCount")
# Source: the answers of the published examples, where the request names no image.
_IMAGE = {"publisher": "Canonical", "offer": "UbuntuServer", "sku": "16.04-LTS", "version": "latest"}


def create(here: Here, ask: Ask) -> Answer:
    """Creates a cluster without nodes; again it changes the scale and nothing else."""
    parent, name = open_parent(here, ask, "clusters"), name_of(ask, "clusters")
    properties = _complete(ask.body["properties"])
    refuse([*_scale_problems(properties["scaleSettings"]), *_setup_problems(here, properties)])
    wanted = redact.visible(properties)
    old = find(here, parent, "clusters", name)
    if old is not None:
        return _repeat(here, alive(old), wanted)
    private = {**_private(properties), "asked": wanted, "warnings": list(ask.warnings)}
    document = fresh(here, parent, "clusters", name, {**wanted, **_empty(here)})
    if "setupTask" in wanted.get("nodeSetup", {}):
        document["properties"]["nodeSetup"] = _placed(wanted["nodeSetup"], document["id"])
    record = here.store.put(document["id"], "clusters", parent.id, document, private)
    return Answer(200, record.document)


def _placed(setup: Document, id: str) -> Document:
    """Returns a node setup that says where its task's output lies below the prefix."""
    return {**setup, "setupTask": {**setup["setupTask"], "stdOutErrPathSuffix": mounts.segment(id, "setuptask")}}


def _complete(properties: Document) -> Document:
    machine = {"imageReference": _IMAGE, **properties.get("virtualMachineConfiguration", {})}
    manual = {"manual": {"targetNodeCount": 0, "nodeDeallocationOption": "requeue"}}
    return {
        **properties,
        "vmSize": properties["vmSize"].upper(),
        "scaleSettings": properties.get("scaleSettings") or manual,
        "virtualMachineConfiguration": machine,
    }


def _empty(here: Here) -> Document:
    return {
        "allocationState": "resizing",
        "allocationStateTransitionTime": here.time(),
        "currentNodeCount": 0,
        "nodeStateCounts": dict.fromkeys(_COUNTS, 0),
    }


def _private(properties: Document) -> Document:
    setup = properties.get("nodeSetup", {})
    return {
        # What the scheduler keeps of the nodes: whole from the start, for the cluster may go before it has looked.
        "names": [],
        "leaving": [],
        "preparing": {},
        "unusable": {},
        "keys": redact.account_keys(setup.get("mountVolumes", {})),
        "secrets": redact.secrets(setup.get("setupTask", {}).get("secrets", [])),
    }


def _repeat(here: Here, old: Record, wanted: Document) -> Answer:
    before = old.private["asked"]
    differ = sorted(name for name in {*before, *wanted} - {"scaleSettings"} if before.get(name) != wanted.get(name))
    if differ:
        raise ConflictError(
            f"The cluster '{old.document['name']}' exists already with other settings ({', '.join(differ)}); "
            "delete it first, or use another name.",
            status=409,
            code="ClusterAlreadyExists",
            target=f"/properties/{differ[0]}",
        )
    return _rescale(here, old, wanted["scaleSettings"])


def update(here: Here, ask: Ask) -> Answer:
    """Changes a cluster's scale; nodes come and go afterwards."""
    old = alive(named(here, ask, "clusters"))
    scale = ask.body.get("properties", {}).get("scaleSettings")
    if scale is None:
        return Answer(200, old.document)
    refuse(_scale_problems(scale))
    return _rescale(here, old, scale)


def _rescale(here: Here, old: Record, scale: Document) -> Answer:
    if old.document["properties"]["scaleSettings"] == scale:
        return Answer(200, old.document)

    def change(document: Document, private: Document) -> None:
        properties = document["properties"]
        properties["scaleSettings"] = scale
        properties["allocationState"], properties["allocationStateTransitionTime"] = "resizing", here.time()

    changed = here.store.update(old.id, change)
    return Answer(200, (changed or old).document)


def most_nodes(cluster: Document) -> int:
    """Returns how many nodes a cluster may come to have, from its ``properties``."""
    scale = cluster["scaleSettings"]
    if "autoScale" in scale:
        return int(scale["autoScale"]["maximumNodeCount"])
    return int(scale["manual"]["targetNodeCount"])


def _scale_problems(scale: Document) -> list[Problem]:
    at = "/properties/scaleSettings"
    if len(scale) != 1:
        return [Problem(at, "must hold either manual or autoScale")]
    kind, values = next(iter(scale.items()))
    problems = [
        Problem(f"{at}/{kind}/{name}", f"must be from 0 to {MOST_NODES}, not {value}")
        for name, value in values.items()
        if isinstance(value, int) and not 0 <= value <= MOST_NODES
    ]
    if kind == "autoScale":
        problems += _range_problems(values, f"{at}/autoScale")
    return problems


def _range_problems(values: Document, at: str) -> list[Problem]:
    least, most, first = (values[f"{name}NodeCount"] for name in ("minimum", "maximum", "initial"))
    if least > most:
        return [Problem(f"{at}/minimumNodeCount", f"must be at most maximumNodeCount ({most}), not {least}")]
    if first > most:
        return [Problem(f"{at}/initialNodeCount", f"must be at most maximumNodeCount ({most}), not {first}")]
    return []


def _setup_problems(here: Here, properties: Document) -> list[Problem]:
    setup, at = properties.get("nodeSetup", {}), "/properties/nodeSetup"
    found = mount_rules.problems(here, setup.get("mountVolumes", {}), f"{at}/mountVolumes")
    if "setupTask" not in setup or found:
        return found
    known, task = mounts.every({}, properties), setup["setupTask"]
    return mount_rules.variable_problems(task, f"{at}/setupTask") + mount_rules.log_problems(
        task, known, f"{at}/setupTask"
    )


def list_logins(here: Here, ask: Ask) -> Answer:
    """Lists the nodes with the address of the machine they run on."""
    return paging.page(ask, logins(named(here, ask, "clusters").private.get("names", ())), *BY_NODE)


def logins(names: Any) -> list[Document]:
    """Returns how to reach nodes: all of them are this machine, on its own ssh port."""
    return sorted(({"nodeId": name, "ipAddress": "127.0.0.1", "port": 22} for name in names), key=BY_NODE[0])


BY_NODE = (lambda login: str(login["nodeId"]), lambda login: login)
