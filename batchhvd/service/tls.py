"""TLS for clients that insist on it: a certificate created on the spot, and a proxy for Azure's public names.

With the proxy, a client keeps its factory settings. It asks for ``management.azure.com`` through it; the proxy joins it
to this service's own TLS port, whose certificate bears that name. Other names are refused, so nothing gets out.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from attrs import frozen
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from batchhvd.service.http import limits
from batchhvd.service.http.host import is_public
from batchhvd.service.store import durable
from batchhvd.wire.facts.hosts import BLOB_DOMAIN, FILE_DOMAIN, LOGIN_HOSTS, MANAGEMENT_HOSTS

NAMES = ("localhost", *MANAGEMENT_HOSTS, *LOGIN_HOSTS, f"*.{FILE_DOMAIN}", f"*.{BLOB_DOMAIN}")
_LIFETIME = timedelta(days=30)
_MARGIN = timedelta(days=1)


@frozen
class Identity:
    """The files of the service's certificate.

    Attributes:
        authority: the certificate that clients are told to trust; its key was discarded after one signature.
        certificate: the service's own certificate.
        key: the service's key, readable by its owner only.
    """

    authority: Path
    certificate: Path
    key: Path


def identity(root: Path) -> Identity:
    """Returns the root's certificate; created if there is none or it expires within a day."""
    folder = root / "tls"
    found = Identity(root / "ca.pem", folder / "server.pem", folder / "server.key")
    if not _good(found):
        folder.mkdir(mode=0o700, exist_ok=True)
        _make(found)
    return found


def _good(found: Identity) -> bool:
    """Says whether the files are whole, belong together, and are good for another day."""
    try:
        certificate, authority = (
            x509.load_pem_x509_certificate(path.read_bytes()) for path in (found.certificate, found.authority)
        )
        key = serialization.load_pem_private_key(found.key.read_bytes(), password=None)
        certificate.verify_directly_issued_by(authority)
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound, InvalidSignature, UnsupportedAlgorithm):
        return False  # missing or damaged; or a kill or a power cut came between two of them
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    of_now = set(named.get_values_for_type(x509.DNSName)) == set(NAMES)  # an earlier version knew fewer names
    fits = key.public_key() == certificate.public_key() and of_now
    return fits and certificate.not_valid_after_utc > datetime.now(timezone.utc) + _MARGIN


def _make(where: Identity) -> None:
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = _name("batchhvd on this machine")
    authority = _authority(name, authority_key)
    certificate = _certificate(name, authority, authority_key, key)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    durable.replace(where.key, private.decode(), 0o600)
    durable.replace(where.certificate, certificate.public_bytes(serialization.Encoding.PEM).decode())
    durable.replace(where.authority, authority.public_bytes(serialization.Encoding.PEM).decode())


def _authority(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    usage = _usage(sign_certificates=True)
    return (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )


def _certificate(
    issuer: x509.Name,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    names = [*map(x509.DNSName, NAMES), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _builder(_name("batchhvd"), issuer, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Proxy:
    """A CONNECT proxy that leads Azure's public names to one TLS port of this machine, and nothing anywhere else."""

    def __init__(self, port: int) -> None:
        """Makes a proxy.

        Args:
            port: the TLS port on 127.0.0.1.
        """
        self._port, self._most = port, limits.connections() * limits.PROXIED
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        self._open[writer] = asyncio.current_task()
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away, or never sent a request
        finally:
            writer.close()
            del self._open[writer]

    async def close(self) -> None:
        """Ends the connections that are open."""
        tasks = [task for task in self._open.values() if task is not None]
        for writer in self._open:
            writer.close()
        await asyncio.gather(*tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) > self._most:
            await _refuse(writer, "429 Too Many Requests")
            return
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), limits.HEAD_SECONDS)
        except asyncio.TimeoutError:
            await _refuse(writer, "408 Request Timeout")
            return
        except asyncio.LimitOverrunError:
            await _refuse(writer, "431 Request Header Fields Too Large")
            return
        if not ours(head):
            await _refuse(writer, "403 Forbidden")
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _first_of([_copy(reader, there_writer), _copy(there_reader, writer)])
        finally:
            there_writer.close()


async def _refuse(writer: asyncio.StreamWriter, status: str) -> None:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
    await writer.drain()


def ours(head: bytes) -> bool:
    """Says whether the head of a proxy request asks for one of the names that this service stands in for."""
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    host, _, port = rest.partition(" ")[0].rpartition(":")
    return method == "CONNECT" and port == "443" and is_public(host)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def _first_of(copies: Sequence[Coroutine[object, None, None]]) -> None:
    tasks = [asyncio.ensure_future(copy) for copy in copies]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
