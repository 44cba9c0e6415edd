"""From a job's document to the fields of ``JobSpec``: what has a field there, and what is left as ``extra``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from batchhvd.errors import SpecError
from batchhvd.spec.document import clean, errors_at
from batchhvd.spec.json_source import JsonSource
from batchhvd.spec.mounts import KINDS, Mount, Volume
from batchhvd.spec.schema import toolkits
from batchhvd.spec.toolkits import TOOLKITS, InputDirectory, OtherToolkit, OutputDirectory, Task
from batchhvd.wire.facts.documents import Body, Document
from batchhvd.wire.facts.job_variables import CONTENT, ENGINE_OPTIONS, RUN, engine_options
from batchhvd.wire.facts.pointers import child
from batchhvd.wire.facts.times import read_duration

# What the service adds to a job that it shows (the description's JobProperties less its JobBaseProperties).
_SHOWN = frozenset(
    {
        "creationTime",
        "batchhvd",
        "executionInfo",
        "executionState",
        "executionStateTransitionTime",
        "experimentName",
        "jobOutputDirectoryPathSegment",
        "provisioningState",
        "provisioningStateTransitionTime",
        "toolType",
    }
)
_WEEK = timedelta(days=7)  # the description's default
_Value = TypeVar("_Value")


def fields(source: JsonSource) -> Body:
    """Takes the fields of ``JobSpec`` out of a checked document; the rest is its ``extra``.

    Raises:
        SpecError: not exactly one toolkit, or a value that no field can take, with its place.
    """
    properties = {name: value for name, value in source.value["properties"].items() if value is not None}
    task = _task(source, properties)
    rest = {name: clean(value) for name, value in properties.items() if name != task.wire}
    taken = {
        "task": task,
        "nodes": rest.pop("nodeCount"),
        "logs": rest.pop("stdOutErrPathPrefix"),
        "priority": str(rest.pop("schedulingPriority", "normal")).lower(),
        "cluster": rest.pop("cluster", {}).get("id"),
        "preparation": _take(rest, "jobPreparation", "commandLine"),
        "image": _take(rest, "containerSettings", "imageSourceRegistry", "image"),
        "max_seconds": _limit(source, _take(rest, "constraints", "maxWallClockTime")),
        **_volumes(source, rest.pop("mountVolumes", {})),
        **_directories(source, rest),
        **_variables(source, rest),
    }
    rest.update(taken.pop("rest"))
    return {**taken, "extra": clean(rest)}


def shown(properties: Document) -> Body:
    """Returns the properties of a job that the service shows, less what the service has added or filled in."""
    kept = {name: value for name, value in properties.items() if name not in _SHOWN}
    for name in TOOLKITS.keys() & kept.keys():
        kept[name] = _less(kept[name] or {}, {"processCount": properties.get("nodeCount")})
    limit = (kept.get("constraints") or {}).get("maxWallClockTime")
    if limit and (read_duration(limit) or timedelta()) == _WEEK:
        kept["constraints"] = _less(kept["constraints"], {"maxWallClockTime": limit})
    volumes = kept.get("mountVolumes") or {}
    modes = {"fileMode": "0777", "directoryMode": "0777"}
    listed = [_less(share, modes) for share in volumes.get("azureFileShares") or ()]
    return {**kept, "mountVolumes": {**volumes, "azureFileShares": listed}}


def _less(block: Document, defaults: Document) -> Body:
    return {name: value for name, value in block.items() if name not in defaults or value != defaults[name]}


def _task(source: JsonSource, properties: Document) -> Task:
    found = [name for name in toolkits() if name in properties]
    if len(found) != 1:
        problem = f"{' and '.join(found)} are given together" if found else "nothing says what to run"
        raise source.fault("/properties", problem, f"give exactly one of {', '.join(toolkits())}")
    name, block = found[0], properties[found[0]]
    if name not in TOOLKITS:
        return OtherToolkit(name, block)
    with errors_at(source, f"/properties/{name}"):
        task: Task = TOOLKITS[name].from_document({field: value for field, value in block.items() if value is not None})
    return task


def _take(rest: Body, name: str, *below: str) -> Any:
    """Takes one value out of nested objects; what else they hold stays in ``rest``."""
    block = rest.get(name)
    if not below or block is None:
        return rest.pop(name, None)
    block = dict(block)
    value = _take(block, *below)
    rest[name] = block
    return value


def duration_seconds(text: str) -> float:
    """Returns the seconds of a duration such as ``"PT1H30M"`` or ``"7.00:00:00"``.

    Raises:
        SpecError: the text is not a duration.
    """
    length = read_duration(text)
    if length is None:
        raise SpecError(f'"{text}" is not a duration', remedy='write "PT1H30M" or "0.01:30:00" for an hour and a half')
    return length.total_seconds()


def _limit(source: JsonSource, text: str | None) -> float | None:
    with errors_at(source, "/properties/constraints/maxWallClockTime"):
        return duration_seconds(text) if text else None


def _volumes(source: JsonSource, block: Document) -> Body:
    at = "/properties/mountVolumes"
    other = {name: value for name, value in block.items() if name not in (*KINDS, "azureFileShares")}
    volumes = [
        volume
        for kind in KINDS
        for volume in _each(source, f"{at}/{kind}", block.get(kind, ()), partial(_volume, kind))
    ]
    mounts = _each(source, f"{at}/azureFileShares", block.get("azureFileShares", ()), Mount.from_document)
    return {"mounts": mounts, "volumes": volumes, "rest": {"mountVolumes": other}}


def _volume(kind: str, item: Document) -> Volume:
    settings = {name: value for name, value in item.items() if name != "relativeMountPath"}
    return Volume(kind, item["relativeMountPath"], settings)


def _each(source: JsonSource, at: str, items: Iterable[Document], make: Callable[[Document], _Value]) -> list[_Value]:
    made = []
    for index, item in enumerate(items):
        with errors_at(source, child(at, index)):
            made.append(make(item))
    return made


def _directories(source: JsonSource, rest: Body) -> Body:
    inputs, outputs = rest.pop("inputDirectories", ()), rest.pop("outputDirectories", ())
    return {
        "inputs": _each(source, "/properties/inputDirectories", inputs, InputDirectory.from_document),
        "outputs": _each(source, "/properties/outputDirectories", outputs, OutputDirectory.from_document),
    }


def _variables(source: JsonSource, rest: Body) -> Body:
    found: dict[str, Body] = {}
    for field, wire in (("environment", "environmentVariables"), ("secrets", "secrets")):
        found[field] = {}
        for index, item in enumerate(rest.pop(wire, ())):
            name = item["name"]
            if name in found[field] or not name or "=" in name:
                problem = (
                    f'"{name}" is listed twice' if name in found[field] else f'"{name}" is not the name of a variable'
                )
                raise source.fault(f"/properties/{wire}/{index}", problem, "keep each name once, without =")
            found[field][name] = item.get("value", item.get("valueSecretReference", ""))
    content = _content(found["environment"].pop(CONTENT, ""))
    found["environment"].pop(RUN, None)
    options = engine_options(found["environment"])
    if options:
        found["environment"].pop(ENGINE_OPTIONS)
    return {**found, "content": content, "engine_options": options}


def _content(text: object) -> dict[str, str]:
    """Returns what a job notes about the files that it was submitted with; nothing if that is not ours."""
    try:
        noted = json.loads(str(text))
    except ValueError:
        return {}
    return {str(path): str(checksum) for path, checksum in noted.items()} if isinstance(noted, dict) else {}
