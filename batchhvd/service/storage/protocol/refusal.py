"""How the file service says no: one table of codes, and the translation of the operating system's own refusals."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from batchhvd.errors import ServiceError

# Codes and their statuses. Source: the error codes of Azure Storage and of Azure Files that real clients look at.
_REFUSALS: dict[str, tuple[int, str]] = {
    "AuthenticationFailed": (403, "The request is not signed with a key or a link of this account."),
    "AuthorizationPermissionMismatch": (403, "The link does not permit this operation."),
    "AuthorizationProtocolMismatch": (403, "The link is not valid for this protocol."),
    "AuthorizationResourceTypeMismatch": (403, "The link is not valid for this kind of resource."),
    "AuthorizationServiceMismatch": (403, "The link is not valid for this service."),
    "AuthorizationSourceIPMismatch": (403, "The link is not valid for the address that the request comes from."),
    "BlobAlreadyExists": (409, "The blob exists already."),
    "BlobNameConflict": (409, "Blobs are files here: one cannot be the directory of another."),
    "BlobNotFound": (404, "The blob does not exist."),
    "BlockListTooLong": (400, "A blob can have 50,000 blocks."),
    "CannotAccess": (403, "The operating system does not let the service touch this path."),
    "CannotVerifyCopySource": (404, "The source of the copy is not a file of this service that the request may read."),
    "ConditionHeadersNotSupported": (400, "This operation takes no conditions."),
    "ConditionNotMet": (412, "The condition in the request's headers does not hold."),
    "ContainerAlreadyExists": (409, "The container exists already."),
    "ContainerNotFound": (404, "The container does not exist."),
    "CorsPreflightFailure": (
        403,
        "No CORS rule of the account permits this; Set File Service Properties sets those of files.",
    ),
    "Crc64Mismatch": (400, "The body does not have the CRC-64 that its header promises."),
    "DirectoryNotEmpty": (409, "The directory is not empty."),
    "EmptyMetadataKey": (400, "A metadata header has no name."),
    "FilePermissionNotFound": (404, "The share has no permission with this key."),
    "InfiniteLeaseDurationRequired": (412, "A file's lease is infinite; send x-ms-lease-duration: -1."),
    "InternalError": (500, "The service failed; its log says why."),
    "InvalidBlockId": (400, "A block's id must be 1 to 64 bytes in base64."),
    "InvalidBlockList": (400, "The specified block list is invalid: it names a block that was not put."),
    "InvalidHeaderValue": (400, "A header has a value that cannot be used."),
    "InvalidInput": (400, "The body is not what this operation takes."),
    "InvalidMetadata": (400, "A metadata name must begin with a letter or '_' and have only letters, digits and '_'."),
    "InvalidQueryParameterValue": (400, "A query parameter has a value that cannot be used."),
    "InvalidRange": (416, "The range lies outside the file."),
    "InvalidResourceName": (400, "The name cannot be used."),
    "InvalidXmlDocument": (400, "The body is not the XML document that this operation takes."),
    "LeaseAlreadyBroken": (409, "The lease is broken already."),
    "LeaseAlreadyPresent": (409, "There is a lease already."),
    "LeaseIdMismatchWithContainerOperation": (412, "The share has a lease with another id."),
    "LeaseIdMismatchWithFileOperation": (412, "The file has a lease with another id."),
    "LeaseIdMismatchWithLeaseOperation": (409, "The lease has another id."),
    "LeaseIdMissing": (412, "There is a lease, and the request has no x-ms-lease-id."),
    "LeaseIsBreakingAndCannotBeAcquired": (409, "The lease is being broken; it cannot be acquired until then."),
    "LeaseIsBreakingAndCannotBeChanged": (409, "The lease is being broken; it cannot be changed."),
    "LeaseIsBrokenAndCannotBeRenewed": (409, "The lease was broken; it cannot be renewed."),
    "LeaseNotPresentWithContainerOperation": (412, "The share has no lease."),
    "LeaseNotPresentWithFileOperation": (412, "The file has no lease."),
    "LeaseNotPresentWithLeaseOperation": (409, "There is no lease."),
    "Md5Mismatch": (400, "The body does not have the MD5 that Content-MD5 promises."),
    "MetadataTooLarge": (400, "Metadata and content headers take more than 8 KiB."),
    "MissingContentLengthHeader": (411, "Content-Length is missing."),
    "MissingRequiredHeader": (400, "A required header is missing."),
    "NoPendingCopyOperation": (409, "Copies end before they are answered, so none can be stopped."),
    "NotImplemented": (501, "This service does not support this operation."),
    "OutOfRangeInput": (400, "A value is outside what is allowed."),
    "ParentNotFound": (404, "The directory that should hold it does not exist; create it first."),
    "ReadOnlyAttribute": (409, "The file has the attribute ReadOnly."),
    "RequestBodyTooLarge": (413, "The body is larger than this operation takes; a range may have at most 4 MiB."),
    "ResourceAlreadyExists": (409, "A file or directory of this name exists already."),
    "ResourceNotFound": (404, "The file or directory does not exist."),
    "ResourceTypeMismatch": (409, "The request needs a directory but found a file, or the other way round."),
    "RootGone": (410, "The service cannot answer."),
    "ShareAlreadyExists": (409, "The share exists already."),
    "ShareHasSnapshots": (409, "The share has snapshots; send x-ms-delete-snapshots: include to delete them with it."),
    "ShareNotFound": (404, "The share does not exist."),
    "ShareSizeLimitReached": (413, "The share is full, or the disk that holds it."),
    "ShareSnapshotCountExceeded": (409, "A share can have 200 snapshots."),
    "ShareSnapshotNotFound": (404, "The share has no such snapshot."),
    "ShareSnapshotOperationNotSupported": (409, "A snapshot can be read and deleted, but not changed."),
    "SourceConditionNotMet": (412, "The condition on the source does not hold."),
    "StorageFull": (413, "The disk that holds the containers is full."),
    "UnsupportedHeader": (400, "A header is not known to this operation."),
    "UnsupportedHttpVerb": (405, "This operation does not exist on this resource."),
    "UnsupportedQueryParameter": (400, "A query parameter is not known to this operation."),
}

_OF_THE_SYSTEM = {
    errno.ENOENT: "ResourceNotFound",
    errno.ENOTDIR: "ResourceNotFound",
    errno.ELOOP: "ResourceNotFound",  # a link where a plain file was a moment ago
    errno.ENXIO: "ResourceNotFound",  # a named pipe or a socket that a job made
    errno.ESTALE: "ResourceNotFound",
    errno.EISDIR: "ResourceTypeMismatch",
    errno.EEXIST: "ResourceAlreadyExists",
    errno.ENOTEMPTY: "DirectoryNotEmpty",
    errno.ENAMETOOLONG: "InvalidResourceName",
    errno.EILSEQ: "InvalidResourceName",
    errno.EACCES: "CannotAccess",
    errno.EPERM: "CannotAccess",
    errno.EROFS: "CannotAccess",
    errno.ENOSPC: "ShareSizeLimitReached",
    errno.EDQUOT: "ShareSizeLimitReached",
    errno.EFBIG: "OutOfRangeInput",
}


class CopySourceError(ServiceError):
    """The source of a copy was not readable.

    Attributes:
        headers: what the answer says of the source, beyond its code.
    """

    headers: Mapping[str, str]

    def __init__(self, message: str, *, status: int, code: str, source_status: int, source_code: str) -> None:
        super().__init__(message, status=status, code=code)
        self.headers = {
            "x-ms-copy-source-status-code": str(source_status),
            "x-ms-copy-source-error-code": source_code,
        }


def refusal(code: str, why: str = "") -> ServiceError:
    """Returns the error that answers a request with this code; ``why`` adds a sentence to the code's own."""
    status, message = _REFUSALS[code]
    return ServiceError(f"{message} {why}".rstrip(), status=status, code=code)


def translate(error: OSError) -> ServiceError | None:
    """Returns what the operating system's refusal means to a client, or None if it is a fault of the service."""
    code = _OF_THE_SYSTEM.get(error.errno or 0)
    return refusal(code) if code else None
