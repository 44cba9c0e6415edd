"""What is done with each header of each operation: one table, for the check of requests and for docs/blobs.md."""

from __future__ import annotations

from batchhvd.service.storage.protocol.header_rules import CONDITIONS, METADATA, Rule, Table, unsupported

_USED = Rule("used")
_KEPT = Rule("kept")
_SWITCH = Rule("used", values="true|false")
_TRACING = Rule("no effect: for tracing")

_EVERY: dict[str, Rule] = {
    "x-ms-date": _USED,
    "x-ms-version": _USED,
    "x-ms-client-request-id": Rule("given back"),
    "x-ms-return-client-request-id": Rule("no effect: it is always returned"),
    "x-ms-client-session-id": _TRACING,
    "x-ms-correlation-request-id": _TRACING,
    "x-ms-useragent": _TRACING,
    "x-ms-lease-id": unsupported("leases"),
    "x-ms-if-tags": unsupported("tags"),
    "x-ms-encryption-key": unsupported("keys of the customer"),
    "x-ms-encryption-key-sha256": unsupported("keys of the customer"),
    "x-ms-encryption-algorithm": unsupported("keys of the customer"),
    "x-ms-encryption-scope": unsupported("encryption scopes"),
}
_META = {METADATA: _KEPT}
_IF = dict.fromkeys(CONDITIONS, _USED)
_MODIFIED = dict.fromkeys(("if-modified-since", "if-unmodified-since"), _USED)
_CONTENT = dict.fromkeys(
    ("x-ms-blob-content-type", "x-ms-blob-content-encoding", "x-ms-blob-content-language",
     "x-ms-blob-content-disposition", "x-ms-blob-content-md5", "x-ms-blob-cache-control"),
    _KEPT,
)  # fmt: skip
_PAGES = dict.fromkeys(
    ("x-ms-blob-content-length", "x-ms-blob-sequence-number", "x-ms-sequence-number-action"),
    unsupported("page blobs"),
)
_BODY: dict[str, Rule] = {
    "x-ms-content-crc64": Rule("checked"),
    "x-ms-structured-body": unsupported("structured bodies; send x-ms-content-crc64 or Content-MD5"),
    "x-ms-structured-content-length": unsupported("structured bodies; send x-ms-content-crc64 or Content-MD5"),
}
_NEW: dict[str, Rule] = {
    "x-ms-access-tier": Rule("no effect: all is on one disk", values="Hot", unsupported="Cool|Cold|Archive|P.*"),
    "x-ms-tags": unsupported("tags"),
    "x-ms-legal-hold": unsupported("legal holds"),
    "x-ms-immutability-policy-until-date": unsupported("immutability policies"),
    "x-ms-immutability-policy-mode": unsupported("immutability policies"),
    **_META,
}
_SOURCE_SUMS = dict.fromkeys(("x-ms-source-content-md5", "x-ms-source-content-crc64"), Rule("checked"))
_SOURCE: dict[str, Rule] = {
    "x-ms-copy-source": _USED,
    "x-ms-copy-source-authorization": unsupported("OAuth; put a link into x-ms-copy-source"),
}
_SOURCE_IF = dict.fromkeys((f"x-ms-source-{name}" for name in CONDITIONS), _USED)

TABLE = Table(
    _EVERY,
    {
        "List Containers": {},
        "Get Account Information": {},
        "Create Container": {
            **_META,
            "x-ms-blob-public-access": unsupported("access without a key or a link"),
            "x-ms-default-encryption-scope": unsupported("encryption scopes"),
            "x-ms-deny-encryption-scope-override": unsupported("encryption scopes"),
        },
        "Get Container Properties": {},
        "Get Container Metadata": {},
        "Set Container Metadata": {**_META, "if-modified-since": _USED},
        "Get Container ACL": {},
        "Set Container ACL": {
            "x-ms-blob-public-access": unsupported("access without a key or a link"),
            **_MODIFIED,
            **_BODY,
        },
        "Delete Container": _MODIFIED,
        "List Blobs": {},
        "Put Blob": {
            "x-ms-blob-type": Rule("used", values="BlockBlob", unsupported="PageBlob|AppendBlob"),
            **_CONTENT,
            **_NEW,
            **_PAGES,
            **_BODY,
            **_IF,
        },
        "Get Blob": {
            "x-ms-range": _USED,
            "x-ms-range-get-content-md5": _SWITCH,
            "x-ms-range-get-content-crc64": _SWITCH,
            "x-ms-structured-body": _BODY["x-ms-structured-body"],
            **_IF,
        },
        "Get Blob Properties": _IF,
        "Get Blob Metadata": _IF,
        "Set Blob Properties": {**_CONTENT, **_PAGES, **_IF},
        "Set Blob Metadata": {**_META, **_IF},
        "Delete Blob": {
            "x-ms-delete-snapshots": Rule("no effect: there are none", values="include", unsupported="only"),
            **_IF,
        },
        "Put Block": {METADATA: Rule("no effect: those of the list count"), **_BODY},
        "Put Block List": {**_CONTENT, **_NEW, **_BODY, **_IF},
        "Get Block List": {},
        "Put Blob From URL": {
            "x-ms-blob-type": Rule("used", values="BlockBlob", unsupported="PageBlob|AppendBlob"),
            "x-ms-copy-source-blob-properties": _SWITCH,
            "x-ms-copy-source-tag-option": unsupported("tags"),
            "x-ms-source-if-tags": unsupported("tags"),
            **_SOURCE,
            **_SOURCE_SUMS,
            **_SOURCE_IF,
            **_CONTENT,
            **_NEW,
            **_IF,
        },
        "Put Block From URL": {**_SOURCE, **_SOURCE_SUMS, **_SOURCE_IF, "x-ms-source-range": _USED},
        "Copy Blob": {
            **_SOURCE,
            "x-ms-requires-sync": Rule("no effect: copies are done when they are answered", values="true|false"),
            "x-ms-rehydrate-priority": unsupported("archived blobs"),
            "x-ms-seal-blob": unsupported("append blobs"),
            "x-ms-source-if-tags": unsupported("tags"),
            "x-ms-source-lease-id": unsupported("leases"),
            "x-ms-source-content-md5": unsupported("checks of the source"),
            "x-ms-copy-source-tag-option": unsupported("tags"),
            **_SOURCE_IF,
            **_CONTENT,
            **_NEW,
            **_IF,
        },
        "Abort Copy Blob": {"x-ms-copy-action": Rule("used", values="abort")},
    },
)
"""What is done with each header of each operation."""
