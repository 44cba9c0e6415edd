"""The pytest plugin: the fixtures ``azure_files`` and ``batchai``, and the marker ``azure_fault``.

pytest imports this module at every start in whatever project, so it imports nothing but pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from batchhvd.testing.batchai import BatchAI, BatchAIService
    from batchhvd.testing.files import AzureFiles, FilesService

_MARKER = (
    "azure_fault(kind, *, times=1, operation='', seconds=0.5, point='answer'): what goes wrong with the requests of "
    "this test to azure_files; kind is throttle, server_busy, cut or slow (batchhvd)"
)
_NEEDED = ("starlette", "uvicorn", "httptools", "cryptography")


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line("markers", _MARKER)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuses a fault that nothing would meet: the test would pass without it."""
    if item.get_closest_marker("azure_fault") and "azure_files" not in getattr(item, "fixturenames", ()):
        pytest.fail("azure_fault has no effect on a test without the fixture azure_files; add it", pytrace=False)


@pytest.fixture(scope="session")
def _azure_files_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilesService]:
    _check_extra("azure_files")
    from batchhvd.testing.files import FilesService

    service = FilesService(tmp_path_factory.mktemp("azure-files"))
    yield service
    service.close()


@pytest.fixture
def azure_files(request: pytest.FixtureRequest, _azure_files_service: FilesService) -> Iterator[AzureFiles]:
    """A storage account of Azure Files with an empty share, for one test."""
    with _azure_files_service.account() as account:
        for marker in reversed(list(request.node.iter_markers("azure_fault"))):
            _fault(account, marker)
        yield account


@pytest.fixture(scope="session")
def _batchai_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchAIService]:
    _check_extra("batchai")
    from batchhvd.testing.batchai import BatchAIService

    service = BatchAIService(tmp_path_factory.mktemp("batchai"))
    yield service
    service.close()


@pytest.fixture
def batchai(_batchai_service: BatchAIService, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchAI]:
    """An empty resource group of a Batch AI service, for one test; ``batchhvd.local()`` leads to the service."""
    monkeypatch.setenv("BATCHHVD_ROOT", str(_batchai_service.root))
    with _batchai_service.group() as group:
        yield group


def _fault(account: AzureFiles, marker: pytest.Mark) -> None:
    try:
        account.fault(*marker.args, **marker.kwargs)
    except (TypeError, ValueError) as error:
        pytest.fail(f"azure_fault: {error}", pytrace=False)


def _check_extra(fixture: str) -> None:
    """Says in a line what has to be installed; a traceback of an import would not."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        text = f"the fixture {fixture} needs {', '.join(missing)}: pip install 'batchhvd[service]'"
        pytest.fail(text, pytrace=False)
