"""The table of the blob service's operations and headers: complete, checked, and the one that docs/blobs.md shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchhvd.errors import ServiceError
from batchhvd.service.blobs import headers, reference
from batchhvd.service.blobs.route import actions

PAGE = Path(__file__).parents[3] / "docs" / "blobs.md"


def test_the_page_shows_the_codes_own_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert reference.replaced(page) == page, "run: python -m batchhvd.service.blobs.reference docs/blobs.md"
    assert all(f"| {name} |" in page for name in headers.TABLE.operations)


def test_each_operation_says_what_it_does_with_headers() -> None:
    assert {action.name for _, action in actions()} == set(headers.TABLE.operations)


@pytest.mark.parametrize(
    ("operation", "header", "value", "code"),
    [
        ("Put Blob", "x-ms-nonsense", "1", "UnsupportedHeader"),
        ("Put Blob", "x-ms-blob-type", "PageBlob", "NotImplemented"),
        ("Put Blob", "x-ms-blob-type", "Block", "InvalidHeaderValue"),
        ("Put Blob", "x-ms-access-tier", "Archive", "NotImplemented"),
        ("Get Blob", "x-ms-lease-id", "1", "NotImplemented"),
        ("Get Blob", "x-ms-encryption-key", "1", "NotImplemented"),
        ("List Blobs", "if-match", "*", "ConditionHeadersNotSupported"),
        ("Create Container", "x-ms-blob-public-access", "container", "NotImplemented"),
        ("Delete Blob", "x-ms-delete-snapshots", "only", "NotImplemented"),
    ],
)
def test_headers_that_change_what_a_request_means_are_refused(
    operation: str, header: str, value: str, code: str
) -> None:
    with pytest.raises(ServiceError) as refused:
        headers.TABLE.check(operation, {header: value})
    assert refused.value.code == code
    assert header in str(refused.value)
