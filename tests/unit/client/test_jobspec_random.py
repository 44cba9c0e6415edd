"""Job files of every shape: what is read back is what was written, and no text breaks the reader."""

import json
from typing import Any, NoReturn

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchhvd.errors import SpecError
from batchhvd.spec import json_source
from batchhvd.spec.job import CustomMpi, CustomToolkit, Horovod, InputDirectory, JobSpec, Mount, OutputDirectory, Volume

QUICK = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None
)

words = st.text("abcXYZ äß漢_-.$/ ", min_size=1, max_size=12).filter(str.strip)
names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True)
parts = st.from_regex(r"[a-z0-9][a-z0-9 ä-]{0,8}[a-z0-9]", fullmatch=True)
counts = st.integers(1, 10**6)
tasks = st.one_of(
    st.builds(Horovod, words, words, processes=st.none() | counts, python=st.none() | words),
    st.builds(CustomMpi, words, processes=st.none() | counts),
    st.builds(CustomToolkit, words),
)
mounts = st.builds(
    Mount, st.from_regex(r"[a-z0-9]{3,10}", fullmatch=True), st.from_regex("[a-z0-9-]{3,9}", fullmatch=True), parts
)
volumes = st.builds(
    Volume,
    st.just("azureBlobFileSystems"),
    parts.map("blob-{}".format),  # no mount has such a path; two at one place are refused
    st.fixed_dictionaries({"accountName": names, "containerName": names}),
)
specs = st.builds(
    JobSpec,
    nodes=counts,
    task=tasks,
    logs=words,
    mounts=st.lists(mounts, max_size=3, unique_by=lambda mount: mount.path),
    volumes=st.lists(volumes, max_size=1),
    preparation=st.none() | words,
    image=st.none() | words,
    environment=st.dictionaries(names, words, max_size=3),
    inputs=st.lists(st.builds(InputDirectory, names, words), max_size=2, unique_by=lambda one: one.id),
    outputs=st.lists(
        st.builds(OutputDirectory, names, words, st.none() | words), max_size=2, unique_by=lambda one: one.id
    ),
    max_seconds=st.none() | st.integers(1, 10**7).map(float),
    priority=st.sampled_from(["low", "normal", "high"]),
)


@QUICK
@given(specs)
def test_every_spec_comes_back_from_its_document(spec: JobSpec) -> None:
    text = json.dumps(spec.to_document(), ensure_ascii=False)
    assert JobSpec.from_document(json.loads(text)) == spec
    shown = {"properties": {**spec._request("/c", {})["properties"], "executionState": "running"}}
    assert JobSpec._from_job(shown) == as_shown(spec)


def as_shown(spec: JobSpec) -> JobSpec:
    """What the service fills in by itself cannot be told from what was given."""
    task = spec.task
    if isinstance(task, (Horovod, CustomMpi)) and task.processes == spec.nodes:
        task = evolve(task, processes=None)
    return evolve(spec, task=task, max_seconds=None if spec.max_seconds == 7 * 86400 else spec.max_seconds)


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@QUICK
@given(documents, st.sampled_from([None, 1, 4, "\t"]))
def test_the_reader_reads_what_python_writes_and_knows_where(value: Any, indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    source = json_source.parse(text)
    assert source.value == value
    for pointer, place in source.places.items():
        found, _ = json.JSONDecoder().raw_decode(text, place)
        assert found == _at(value, pointer)


def _at(value: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


@QUICK
@given(st.text(alphabet="{}[]\",:1e-.tfn ul\\\n'/#ä", max_size=30))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        expected = json.loads(text, object_pairs_hook=_single, parse_constant=_none)
    except (ValueError, RecursionError):
        with pytest.raises(SpecError) as caught:
            json_source.parse(text)
        assert caught.value.line >= 1
        assert caught.value.column >= 1
    else:
        assert json_source.parse(text).value == expected


def _single(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def _none(name: str) -> NoReturn:
    raise ValueError(name)


properties = st.sampled_from(
    [
        "nodeCount",
        "horovodSettings",
        "customToolkitSettings",
        "stdOutErrPathPrefix",
        "mountVolumes",
        "constraints",
        "environmentVariables",
        "inputDirectories",
        "secrets",
        "cluster",
        "nodeCuont",
        "own",
    ]
)


@pytest.mark.filterwarnings("ignore::UserWarning")
@QUICK
@given(st.dictionaries(properties, documents, max_size=6))
def test_a_wrong_document_is_a_spec_error_and_nothing_else(found: dict[str, Any]) -> None:
    try:
        JobSpec.from_document({"properties": found})
    except SpecError as error:
        assert error.problem
