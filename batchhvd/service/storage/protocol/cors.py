"""Rules by which browsers may use an account from pages of other sites (CORS).

Source: the Azure Storage REST reference, "Cross-Origin Resource Sharing (CORS) Support for Azure Storage".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request
from batchhvd.service.storage.protocol.response import Response


@frozen
class CorsRule:
    """One rule.

    Attributes:
        origins: the sites whose pages may send requests, or ``*``.
        methods: the verbs.
        headers: headers that a request may have; one that ends with ``*`` stands for all that begin so.
        exposed: headers of the answer that a page may read.
        seconds: how long a browser may remember the rule.
    """

    origins: Sequence[str]
    methods: Sequence[str]
    headers: Sequence[str]
    exposed: str
    seconds: str

    @classmethod
    def read(cls, kept: Mapping[str, str]) -> CorsRule:
        """Returns a rule as it was set."""
        origins, methods = (_list(kept[name]) for name in ("AllowedOrigins", "AllowedMethods"))
        return cls(origins, methods, _list(kept["AllowedHeaders"]), kept["ExposedHeaders"], kept["MaxAgeInSeconds"])

    def permits(self, origin: str, method: str, headers: Iterable[str] = ()) -> bool:
        """Says whether a page of a site may send such a request."""
        known = "*" in self.origins or origin.lower() in (each.lower() for each in self.origins)
        return known and method in self.methods and all(self._has(header) for header in headers)

    def told(self, origin: str) -> dict[str, str]:
        """Returns the headers by which a browser lets the page have the answer."""
        everyone = "*" in self.origins
        told = {"access-control-allow-origin": "*" if everyone else origin}
        if not everyone:
            told |= {"access-control-allow-credentials": "true", "vary": "Origin"}
        return told

    def _has(self, header: str) -> bool:
        names = (each.lower() for each in self.headers)
        return any(header == name or (name[-1:] == "*" and header.startswith(name[:-1])) for name in names)


def preflight(rules: Sequence[CorsRule], request: Request) -> Response:
    """Answers a browser that asks what it may send; refuses it if no rule permits that."""
    origin, method = request.header("origin"), request.header("access-control-request-method")
    headers = [each.lower() for each in _list(request.header("access-control-request-headers"))]
    if not origin or not method:
        raise refusal("MissingRequiredHeader", "Send Origin and Access-Control-Request-Method.")
    for rule in rules:
        if rule.permits(origin, method, headers):
            told = {
                **rule.told(origin),
                "access-control-allow-methods": method,
                "access-control-max-age": rule.seconds,
            }
            return Response(200, {**told, **({"access-control-allow-headers": ",".join(headers)} if headers else {})})
    raise refusal("CorsPreflightFailure")


def answer(rules: Sequence[CorsRule], request: Request) -> dict[str, str]:
    """Returns the headers that an answer to a page of another site gets, if a rule permits it to have it."""
    origin = request.header("origin")
    for rule in rules:
        if rule.permits(origin, request.method):
            exposed = {"access-control-expose-headers": rule.exposed} if rule.exposed else {}
            return {**rule.told(origin), **exposed}
    return {}


def _list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
