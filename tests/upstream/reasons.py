"""Why some of Microsoft's tests cannot pass here: by the test's name, without ``_async``."""

from __future__ import annotations

_HANDLES = "it needs handles that somebody has opened over SMB by hand"
_PREMIUM = "premium accounts: this service's accounts are standard ones"
_DIFF = "a comparison is one of contents: what a clear or a rewrite left as it was is not a change."

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
        "test_get_share_properties_for_premium_account": _PREMIUM,
        "test_list_shares_no_options_for_premium_account": _PREMIUM,
        "test_update_range_from_file_url_with_oauth": "its source is a blob: this service has files only",
    },
    "blobs": {},
}
"""Tests of what this service does not claim to be."""

DIFFERS: dict[str, dict[str, str]] = {
    "files": {
        "test_abort_copy_file": "a copy is done when it is answered, never pending.",
        "test_list_ranges_diff": _DIFF,
        "test_list_ranges_diff_paged": _DIFF,
        "test_list_ranges_diff_trailing_dot": _DIFF,
        "test_list_ranges_diff_support_rename": _DIFF,
    },
    "blobs": {},
}
"""Tests that fail because the service answers otherwise than Azure, on purpose."""
