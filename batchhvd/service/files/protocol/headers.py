"""What is done with each header of each operation: one table, for the check of requests and for docs/files.md.

A header that is not in it is refused by name: one that an operation does not know may change what it means.
"""

from __future__ import annotations

from batchhvd.service.storage.protocol.header_rules import CONDITIONS, METADATA, Rule, Table, unsupported

_USED = Rule("used")
_KEPT = Rule("kept")
_SWITCH = Rule("used", values="true|false")


_NFS = unsupported("owner, group and mode of files, as NFS shares have them")
_BOUGHT = Rule("kept, if the account's SKU offers it; else 400")

_EVERY: dict[str, Rule] = {
    "x-ms-date": _USED,
    "x-ms-version": _USED,
    "x-ms-client-request-id": Rule("given back"),
    "x-ms-allow-trailing-dot": Rule("used: false removes dots at the end of names", values="true|false"),
    "x-ms-file-request-intent": Rule("no effect: keys and links permit as much", values="backup"),
    "x-ms-return-client-request-id": Rule("no effect: it is always returned"),
    "x-ms-client-session-id": Rule("no effect: for tracing"),
    "x-ms-correlation-request-id": Rule("no effect: for tracing"),
    "x-ms-useragent": Rule("no effect: for tracing"),
    "x-ms-meta": Rule("no effect: Microsoft's client repeats the metadata in it"),
}
_META = {METADATA: _KEPT}
_LEASE = {"x-ms-lease-id": _USED}
_IF = dict.fromkeys(CONDITIONS, _USED)
_CONTENT = dict.fromkeys(
    ("x-ms-content-type", "x-ms-content-encoding", "x-ms-content-language", "x-ms-content-disposition",
     "x-ms-content-md5", "x-ms-cache-control"),
    _KEPT,
)  # fmt: skip
_SMB: dict[str, Rule] = {
    "x-ms-file-attributes": Rule("kept; ReadOnly is enforced for requests"),
    "x-ms-file-creation-time": _KEPT,
    "x-ms-file-last-write-time": _KEPT,
    "x-ms-file-change-time": Rule("kept, until the next change"),
    "x-ms-file-permission": Rule("kept, not enforced"),
    "x-ms-file-permission-format": Rule("used", values="sddl|binary"),
    "x-ms-file-permission-key": Rule("kept, not enforced"),
}
_POSIX = dict.fromkeys(("x-ms-mode", "x-ms-owner", "x-ms-group"), _NFS)
_BODY: dict[str, Rule] = {
    "x-ms-content-crc64": Rule("checked"),
    "x-ms-structured-body": unsupported("structured bodies; send x-ms-content-crc64 or Content-MD5"),
    "x-ms-structured-content-length": unsupported("structured bodies; send x-ms-content-crc64 or Content-MD5"),
}
_SOURCE = {"x-ms-source-allow-trailing-dot": Rule("used: false removes dots at the end of names", values="true|false")}
_SEMANTICS = {"x-ms-file-property-semantics": Rule("no effect: nothing is inherited", values="new|restore")}
_RENAME: dict[str, Rule] = {
    "x-ms-file-rename-source": _USED,
    "x-ms-file-rename-replace-if-exists": _SWITCH,
    "x-ms-file-rename-ignore-readonly": _SWITCH,
    "x-ms-source-lease-id": _USED,
    "x-ms-destination-lease-id": _USED,
    **_SOURCE,
    **_SMB,
    **_META,
}
_LEASING: dict[str, Rule] = {
    "x-ms-lease-action": Rule("used", values="acquire|release|change|renew|break"),
    "x-ms-lease-id": _USED,
    "x-ms-lease-duration": _USED,
    "x-ms-proposed-lease-id": _USED,
}
_TIER: dict[str, Rule] = {
    "x-ms-share-quota": Rule("used and enforced"),
    "x-ms-access-tier": Rule("kept, if the account's SKU has it", values="TransactionOptimized|Hot|Cool|Premium"),
    "x-ms-root-squash": Rule("kept, of NFS shares", values="NoRootSquash|RootSquash|AllSquash"),
    "x-ms-enable-snapshot-virtual-directory-access": Rule("kept, of NFS shares", values="true|false"),
    "x-ms-enable-smb-directory-lease": unsupported("leases of directories over SMB"),
    "x-ms-share-paid-bursting-enabled": Rule("kept, if the account's SKU offers it", values="true|false"),
    **dict.fromkeys(
        ("x-ms-share-paid-bursting-max-bandwidth-mibps",
         "x-ms-share-paid-bursting-max-iops", "x-ms-share-provisioned-bandwidth-mibps", "x-ms-share-provisioned-iops"),
        _BOUGHT,
    ),
}  # fmt: skip
_RECURSIVE = {"x-ms-recursive": _SWITCH}

_OPERATIONS: dict[str, dict[str, Rule]] = {
    "List Shares": {},
    "Get File Service Properties": {},
    "Set File Service Properties": _BODY,
    "Create Share": {
        "x-ms-enabled-protocols": Rule("kept; NFS on SSD accounts only", values="SMB|NFS"),
        **_TIER,
        **_META,
    },
    "Get Share Properties": _LEASE,
    "Get Share Metadata": _LEASE,
    "Set Share Properties": {**_TIER, **_LEASE},
    "Set Share Metadata": {**_META, **_LEASE},
    "Get Share Stats": _LEASE,
    "Delete Share": {"x-ms-delete-snapshots": Rule("used", values="include|include-leased"), **_LEASE},
    "Restore Share": {"x-ms-deleted-share-name": _USED, "x-ms-deleted-share-version": _USED},
    "Snapshot Share": _META,
    "Lease Share": {**_LEASING, "x-ms-lease-break-period": _USED},
    "Get Share ACL": _LEASE,
    "Set Share ACL": {**_LEASE, **_BODY},
    "Create Permission": _BODY,
    "Get Permission": dict.fromkeys(("x-ms-file-permission-key", "x-ms-file-permission-format"), _USED),
    "Create Directory": {**_SMB, **_SEMANTICS, **_POSIX, **_META},
    "Get Directory Properties": {},
    "Get Directory Metadata": {},
    "Set Directory Properties": {**_SMB, **_POSIX},
    "Set Directory Metadata": _META,
    "Delete Directory": {},
    "List Directories and Files": {"x-ms-file-extended-info": Rule("no effect: file ids are always told")},
    "Rename Directory": {**_RENAME, **_IF},
    "Create File": {
        "x-ms-type": Rule("used", values="file"),
        "x-ms-content-length": _USED,
        "x-ms-file-file-type": Rule("used", values="regular", unsupported="symlink|directory"),
        **_CONTENT,
        **_SMB,
        **_SEMANTICS,
        **_POSIX,
        **_META,
        **_LEASE,
        **_IF,
        **_BODY,
    },
    "Get File": {
        "x-ms-range": _USED,
        "x-ms-range-get-content-md5": _SWITCH,
        "x-ms-range-get-content-crc64": _SWITCH,
        "x-ms-structured-body": _BODY["x-ms-structured-body"],
        **_LEASE,
        **_IF,
    },
    "Get File Properties": {**_LEASE, **_IF},
    "Get File Metadata": {**_LEASE, **_IF},
    "Set File Properties": {"x-ms-content-length": _USED, **_CONTENT, **_SMB, **_POSIX, **_LEASE, **_IF},
    "Set File Metadata": {**_META, **_LEASE, **_IF},
    "Delete File": {**_LEASE, **_IF},
    "Put Range": {
        "x-ms-range": _USED,
        "x-ms-write": Rule("used", values="update|clear"),
        "x-ms-file-last-write-time": Rule("used", values="now|preserve"),
        **_LEASE,
        **_IF,
        **_BODY,
    },
    "Put Range From URL": {
        "x-ms-copy-source": _USED,
        "x-ms-copy-source-authorization": unsupported("OAuth; put a link into x-ms-copy-source"),
        "x-ms-source-range": _USED,
        "x-ms-range": _USED,
        "x-ms-write": Rule("used", values="update"),
        "x-ms-file-last-write-time": Rule("used", values="now|preserve"),
        "x-ms-source-content-crc64": Rule("checked"),
        "x-ms-source-if-match-crc64": Rule("checked"),
        "x-ms-source-if-none-match-crc64": Rule("checked"),
        "x-ms-source-content-md5": Rule("checked"),
        **dict.fromkeys((f"x-ms-source-{name}" for name in CONDITIONS), _USED),
        **_SOURCE,
        **_LEASE,
        **_IF,
    },
    "List Ranges": {"x-ms-range": _USED, "x-ms-file-support-rename": _SWITCH, **_LEASE, **_IF},
    "Copy File": {
        "x-ms-copy-source": _USED,
        "x-ms-type": Rule("used", values="file"),
        "x-ms-content-length": Rule("used", values="0"),
        "x-ms-file-permission-copy-mode": Rule("used", values="source|override"),
        "x-ms-file-copy-ignore-readonly": _SWITCH,
        "x-ms-file-copy-set-archive": _SWITCH,
        "x-ms-file-mode-copy-mode": _NFS,
        "x-ms-file-owner-copy-mode": _NFS,
        **_SOURCE,
        **_CONTENT,
        **_SMB,
        **_POSIX,
        **_META,
        **_LEASE,
        **_IF,
    },
    "Abort Copy File": {"x-ms-copy-action": Rule("used", values="abort"), **_LEASE},
    "Rename File": {"x-ms-content-type": _KEPT, **_CONTENT, **_RENAME, **_IF},
    "Lease File": _LEASING,
    "List Handles": _RECURSIVE,
    "Force Close Handles": {"x-ms-handle-id": _USED, **_RECURSIVE},
}


TABLE: Table = Table(_EVERY, _OPERATIONS)
"""What is done with each header of each operation."""
