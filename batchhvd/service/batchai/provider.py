"""What Batch AI says about itself: its operations, and the usage of each quota."""

from __future__ import annotations

from batchhvd.service.description.published import Description
from batchhvd.service.http.exchange import Answer, Ask, Here
from batchhvd.service.store.records import Document
from batchhvd.wire.facts import vm_sizes
from batchhvd.wire.facts.states import VmPriority

_VERBS = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete", "POST": "action"}
_WORDS = {VmPriority.DEDICATED: "Dedicated", VmPriority.LOW_PRIORITY: "Low Priority"}


def list_usages(here: Here, ask: Ask) -> Answer:
    """Lists how much of each resource is in use; there are no quotas, so each limit is the largest number that fits."""
    counts = {"Clusters": here.store.count("clusters"), "Jobs": here.store.count("jobs")}
    nodes = here.store.node_counts()
    for priority, words in _WORDS.items():
        cores = [vm_sizes.size(size).cores * number for size, which, number in nodes if which == priority]
        counts[f"Total Cluster {words} Regional vCPUs"] = sum(cores)
    return Answer(200, {"value": [_usage(name, count) for name, count in counts.items()]})


def _usage(name: str, count: int) -> Document:
    limit = 2**31 - 1
    return {"unit": "Count", "currentValue": count, "limit": limit, "name": {"value": name, "localizedValue": name}}


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
