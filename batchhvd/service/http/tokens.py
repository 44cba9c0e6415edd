"""Bearer tokens: the token endpoints issue one for the service's own secret, and nothing else is accepted."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs

from attrs import field, frozen

from batchhvd.errors import AccessDeniedError
from batchhvd.service.http import limits
from batchhvd.service.http.exchange import Answer
from batchhvd.wire.facts.identity import TENANT

LIFETIME = 86400


@frozen
class Tokens:
    """Issues tokens and checks them; keeps nothing, so that tokens outlive a restart.

    Attributes:
        secret: the content of the file ``token``.
        now: the clock, seconds since 1970.
    """

    secret: str = field(repr=False)
    now: Callable[[], float]

    def issue(self) -> tuple[str, int]:
        """Returns a new token and when it ends, in seconds since 1970."""
        ends = int(self.now()) + LIFETIME
        return f"{ends}.{self._sign(ends)}", ends

    def accepts(self, token: str) -> bool:
        """Says whether a token is the secret itself or one of ours that has not ended."""
        if self.is_secret(token):
            return True
        text, _, signature = token.partition(".")
        if not (self.secret and text.isascii() and text.isdigit() and len(text) < 15):
            return False
        return hmac.compare_digest(signature.encode(), self._sign(int(text)).encode()) and int(text) > self.now()

    def is_secret(self, text: str) -> bool:
        """Says whether a text is the secret; an empty one never is, whatever the file holds."""
        return bool(text) and hmac.compare_digest(text.encode("utf-8", "replace"), self.secret.encode())

    def check(self, authorization: str) -> None:
        """Checks an Authorization header.

        Raises:
            AccessDeniedError: 401, it carries no token that opens the service.
        """
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not self.accepts(token.strip()):
            text = "This request has no valid token: send the content of the service's file 'token' as bearer token."
            raise AccessDeniedError(text, status=401, code="AuthenticationFailed")

    def _sign(self, ends: int) -> str:
        return hmac.new(self.secret.encode(), f"bearer until {ends}".encode(), hashlib.sha256).hexdigest()


def grant(tokens: Tokens, body: bytes, version: int) -> Answer:
    """Answers a token request of a service principal whose client secret is the service's secret.

    Source: RFC 6749 section 4.4; the first version of the endpoint gives numbers as text.
    """
    try:
        fields = parse_qs(body.decode(errors="replace"), max_num_fields=limits.FORM_FIELDS)
    except ValueError:
        return _refusal(400, "invalid_request", f"A token request may have {limits.FORM_FIELDS} fields.")
    form = {name: values[-1] for name, values in fields.items()}
    if form.get("grant_type") != "client_credentials":
        return _refusal(400, "unsupported_grant_type", "Log in as a service principal: grant_type=client_credentials.")
    if not tokens.is_secret(form.get("client_secret", "")):
        return _refusal(401, "invalid_client", "The client secret is not the content of the service's file 'token'.")
    return Answer(200, _granted(tokens, form, version), {"Cache-Control": "no-store"})


def configuration(base: str, tenant: str) -> Answer:
    """Answers with the endpoints of a tenant (those parts of OpenID Connect Discovery that clients read)."""
    body = {
        "token_endpoint": f"{base}/{tenant}/oauth2/v2.0/token",
        "authorization_endpoint": f"{base}/{tenant}/oauth2/v2.0/authorize",
        "issuer": f"{base}/{TENANT}/v2.0",
        "response_types_supported": ["code"],
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
    }
    return Answer(200, body)


def discovery(base: str) -> Answer:
    """Answers which hosts are one authority: only this one (MSAL asks before it trusts a host)."""
    host = base.partition("://")[2]
    body = {
        "tenant_discovery_endpoint": f"{base}/{TENANT}/v2.0/.well-known/openid-configuration",
        "api-version": "1.1",
        "metadata": [{"preferred_network": host, "preferred_cache": host, "aliases": [host]}],
    }
    return Answer(200, body)


def _granted(tokens: Tokens, form: Mapping[str, str], version: int) -> dict[str, object]:
    token, ends = tokens.issue()
    if version == 2:
        return {"token_type": "Bearer", "expires_in": LIFETIME, "ext_expires_in": LIFETIME, "access_token": token}
    numbers = {"expires_in": LIFETIME, "ext_expires_in": LIFETIME, "expires_on": ends, "not_before": ends - LIFETIME}
    return {
        "token_type": "Bearer",
        **{name: str(number) for name, number in numbers.items()},
        "resource": form.get("resource", ""),
        "access_token": token,
    }


def _refusal(status: int, error: str, text: str) -> Answer:
    return Answer(status, {"error": error, "error_description": text}, {"Cache-Control": "no-store"})
