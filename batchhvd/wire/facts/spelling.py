"""Names of metadata keep their capitals: HTTP servers read and write names of headers in lower case, Azure does not."""

METADATA = "x-ms-meta-"
"""The beginning of the headers that carry metadata."""

SPELLING = "batchhvd.spelling"
"""The key of an ASGI scope's extensions with such names as the client spelled them, by lower-cased name, in bytes."""
