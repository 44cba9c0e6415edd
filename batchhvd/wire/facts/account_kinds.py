"""Kinds and SKUs of storage accounts, as far as their shares differ by them."""

FILE_STORAGE = "FileStorage"
"""The kind of accounts whose shares are provisioned: those on SSD, and those of the billing model v2."""

FILE_SKUS = (
    *("Premium_LRS", "Premium_ZRS", "PremiumV2_LRS", "PremiumV2_ZRS"),
    *("StandardV2_LRS", "StandardV2_ZRS", "StandardV2_GRS", "StandardV2_GZRS"),
)
"""The SKUs that accounts of this kind have."""
