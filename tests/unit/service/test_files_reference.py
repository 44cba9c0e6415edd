"""The table of operations and headers: complete, checked, and the one that docs/files.md shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchhvd.errors import ServiceError
from batchhvd.service.files import reference
from batchhvd.service.files.protocol import headers
from batchhvd.service.files.route import actions

PAGE = Path(__file__).parents[3] / "docs" / "files.md"


def test_the_page_shows_the_codes_own_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert reference.replaced(page) == page, "run: python -m batchhvd.service.files.reference docs/files.md"
    assert all(f"| {name} |" in page for name in headers.TABLE.operations)


def test_each_operation_says_what_it_does_with_headers() -> None:
    assert {action.name for _, action in actions()} == set(headers.TABLE.operations)


@pytest.mark.parametrize(
    ("operation", "header", "value", "code"),
    [
        ("Create File", "x-ms-nonsense", "1", "UnsupportedHeader"),
        ("Get Share Properties", "x-ms-meta-a", "1", "UnsupportedHeader"),
        ("Create Directory", "x-ms-lease-id", "1", "UnsupportedHeader"),
        ("List Shares", "if-match", "*", "ConditionHeadersNotSupported"),
        ("Create Share", "x-ms-access-tier", "Nonsense", "InvalidHeaderValue"),
        ("Create Share", "x-ms-enabled-protocols", "SMB;NFS", "InvalidHeaderValue"),
        ("Set Share Properties", "x-ms-root-squash", "Nonsense", "InvalidHeaderValue"),
        ("Set Share Properties", "x-ms-enable-smb-directory-lease", "true", "NotImplemented"),
        ("Create File", "x-ms-mode", "0644", "NotImplemented"),
        ("Get File", "x-ms-structured-body", "XSM/1.0; properties=crc64", "NotImplemented"),
        ("Put Range", "x-ms-file-last-write-time", "2020-01-01T00:00:00Z", "InvalidHeaderValue"),
        ("Delete Share", "x-ms-delete-snapshots", "all", "InvalidHeaderValue"),
    ],
)
def test_a_header_that_is_not_taken_is_refused_by_name(operation: Any, header: Any, value: Any, code: Any) -> None:
    with pytest.raises(ServiceError) as caught:
        headers.TABLE.check(operation, {header: value})
    assert caught.value.code == code
    assert header in str(caught.value) or code == "NotImplemented"
    assert operation in str(caught.value) or code == "InvalidHeaderValue"


def test_headers_that_are_taken_pass_whatever_the_case_of_their_values() -> None:
    check = headers.TABLE.check
    check("Create Share", {"x-ms-access-tier": "hot", "x-ms-meta-a": "1", "x-ms-date": "x", "accept": "*/*"})
    check("Put Range", {"x-ms-write": "Update", "x-ms-file-last-write-time": "Preserve", "if-match": "*"})
