"""What Batch AI says about itself: its operations, and the usage of each quota."""

from __future__ import annotations

from batchhvd.service.description.published import Description
from batchhvd.service.http.exchange import Answer, Ask, Here
from batchhvd.service.store.records import Document
from batchhvd.wire.facts import vm_sizes
from batchhvd.wire.facts.states import VmPriority

_VERBS = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete", "POST": "action"}
# Source: the recording of azure-mgmt-batchai's test quota_and_usage.
_WORDS = {VmPriority.DEDICATED: "Dedicated", VmPriority.LOW_PRIORITY: "LowPriority"}
_FAMILIES = ("D", "Dv2", "NC", "NCv2", "NCv3", "ND", "NV")


def list_usages(here: Here, ask: Ask) -> Answer:
    """Lists how much of each resource is in use; there are no quotas, so each limit is the largest number that fits."""
    counts = {"Clusters": here.store.count("clusters")}
    nodes = here.store.node_counts()
    for priority, words in _WORDS.items():
        cores = [
            (vm_sizes.family(size), vm_sizes.size(size).cores * count) for size, own, count in nodes if own == priority
        ]
        counts[f"Total Cluster {words} Regional vCPUs"] = sum(count for _, count in cores)
        for family in _FAMILIES:
            used = sum(count for own, count in cores if own == family)
            counts[f"Standard {family} Family Cluster {words} vCPUs"] = used
    return Answer(200, {"value": [_usage(name, count) for name, count in counts.items()]})


def _usage(name: str, count: int) -> Document:
    words = {"value": name, "localizedValue": name.replace("LowPriority", "Low Priority")}
    return {"unit": "Count", "currentValue": count, "limit": 2**31 - 1, "name": words}


def list_operations(description: Description, here: Here, ask: Ask) -> Answer:
    """Lists the operations that the description names."""
    found: dict[str, Document] = {}
    for operation in description.operations:
        entry = _operation(operation.method, operation.template)
        found.setdefault(entry["name"], entry)
    return Answer(200, {"value": [found[name] for name in sorted(found)]})


def _operation(method: str, template: str) -> Document:
    parts = [part for part in template.partition("Microsoft.BatchAI/")[2].split("/") if not part.startswith("{")]
    verb, resource = _VERBS[method], parts[-2 if method == "POST" else -1]
    return {
        "name": "/".join(["Microsoft.BatchAI", *parts, verb]),
        "display": {
            "provider": "Batch AI on this machine",
            "resource": resource,
            "operation": parts[-1] if method == "POST" else verb,
            "description": f"{method} {'/'.join(parts)}",
        },
        "origin": "user,system",
        "properties": None,
    }
