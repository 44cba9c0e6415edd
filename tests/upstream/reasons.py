"""Why some of Microsoft's tests cannot pass here: by the test's name, without ``_async``."""

from __future__ import annotations

_HANDLES = "it needs handles that somebody has opened over SMB by hand"

NOT_APPLICABLE: dict[str, dict[str, str]] = {
    "files": {
        "test_close_all_handle": _HANDLES,
        "test_close_single_handle": _HANDLES,
        "test_list_handles_access_rights": _HANDLES,
        "test_list_handles_on_directory": _HANDLES,
        "test_list_handles_on_file": _HANDLES,
        "test_list_handles_on_share": _HANDLES,
        "test_list_handles_on_share_snapshot": _HANDLES,
        "test_list_handles_with_marker": _HANDLES,
        "test_update_range_from_file_url_with_oauth": "its source is a blob: this service has files only",
    },
    "blobs": {
        **dict.fromkeys(
            (
                "test_put_block_with_immutability_policy",
                "test_copy_blob_with_immutability_policy",
                "test_blob_immutability_policy",
                "test_blob_legal_hold",
                "test_download_blob_with_immutability_policy",
                "test_list_blobs_with_immutability_policy",
                "test_snapshot_immutability_policy_and_legal_hold",
                "test_versioning_immutability_policy_and_legal_hold",
            ),
            "it needs the management of accounts with immutability policies",
        ),
        **dict.fromkeys(
            (
                "test_list_blobs_with_object_replication_policy",
                "test_list_system_containers",
                "test_undelete_container",
                "test_restore_with_sas",
            ),
            "it needs an account that was prepared by hand",
        ),
        **dict.fromkeys(
            ("test_abort_copy_blob", "test_create_blob_with_requests", "test_oauth_error_handling"),
            "it needs a host of the internet",
        ),
    },
}
"""Tests of what this service does not claim to be."""

DIFFERS: dict[str, dict[str, str]] = {
    "files": {
        "test_abort_copy_file": "a copy is done when it is answered, never pending.",
    },
    "blobs": {
        **dict.fromkeys(
            (
                "test_create_blob_and_download_blob_with_vid",
                "test_set_blob_metadata_returns_vid",
                "test_delete_specific_blob_version",
                "test_delete_blob_version_with_blob_sas",
                "test_copy_blob_returns_vid",
                "test_set_blob_tier_for_a_version",
                "test_if_blob_exists_vid",
                "test_put_block_list_returns_vid",
                "test_sync_copy_blob_returns_vid",
                "test_list_blobs_include_deletedwithversion",
                "test_delete_blob_with_properties_versioning",
                "test_delete_blobs_with_version_id",
                "test_walk_blobs_with_prefix_delimiter_versions",
                "test_download_blob_with_properties_versioning",
            ),
            "there are no versions of blobs.",
        ),
        "test_soft_delete_blob_without_snapshots": "what is deleted is gone.",
        **dict.fromkeys(
            (
                "test_upload_blob_from_url_with_source_content_md5",
                "test_put_block_with_md5",
                "test_put_block_from_url_and_validate_content_md5",
            ),
            "a CRC-64 is checked, and not answered.",
        ),
        "test_smart_access_tier": "there is one tier.",
        "test_set_container_acl_with_empty_access_policy": "an empty policy is shown as an empty element.",
        "test_set_container_acl_with_empty_identifiers": "an empty policy is shown as an empty element.",
        "test_web_container_normal_operations_working": "$web is no name of a directory here.",
        "test_list_blobs_start_end": "startfrom and endbefore are refused.",
        "test_walk_blobs_start_end": "startfrom and endbefore are refused.",
        "test_create_blob_with_special_chars": "a blob's name is a path of files.",
        "test_copy_blob_async_private_blob_no_sas": "a source without a link says so in its own words.",
        "test_upload_blob_from_url_if_match_condition": "a condition on the source is 412 here, 404 there.",
        "test_get_blob_to_text_with_encoding_and_progress": "the test counts progress in characters.",
        "test_get_properties_last_access_time": "the time of last access is not kept.",
        "test_header_metadata_sort_in_upload_blob_fails": "a bad header is named before the signature is looked at.",
        "test_invalid_service_version_message": "all versions are taken.",
    },
}
"""Tests that fail because the service answers otherwise than Azure, on purpose."""
