"""Finds the operation that a request asks for, and checks the request against the published description."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from attrs import evolve

from batchhvd.errors import BadRequestError, NotFoundError
from batchhvd.service.arm import file_services, groups, storage_accounts
from batchhvd.service.arm.filtering import FILTER, NARROWING
from batchhvd.service.batchai import bulk
from batchhvd.service.batchai.handlers import handlers
from batchhvd.service.description.published import VERSION, Description, Operation
from batchhvd.service.http import paging
from batchhvd.service.http.exchange import Act, Ask, Handler, Here, Reading, read_json
from batchhvd.service.http.incoming import DRY_RUN, Incoming
from batchhvd.service.http.routes import Match, Routes
from batchhvd.wire.facts.identity import SUBSCRIPTION

_KNOWN, _KNOWN_BYTES = 1024, 1024  # requests that are remembered, and how long such a one may be
FILTERED = (groups.list_groups, groups.list_resources)
"""What heeds a filter."""


def routes(description: Description) -> Routes[Operation | Handler]:
    """Returns the table of all paths: those of the description, and Resource Manager's."""
    table: Routes[Operation | Handler] = Routes()
    for operation in description.operations:
        table.add(operation.method, operation.template, operation)
    table.add(
        "POST", description.operation("Jobs_ListByExperiment").template, Reading(partial(bulk.create, description))
    )
    for route in (*groups.ROUTES, *storage_accounts.ROUTES, *file_services.ROUTES):
        table.add(*route)
    return table


class Dispatcher:
    """Finds the handler of a request, and checks the request against the description."""

    def __init__(self, here: Here, description: Description) -> None:
        self._here, self._description = here, description
        self._handlers = handlers(description)
        self._routes = routes(description)
        self._known: dict[tuple[str, bytes], Act] = {}

    def prepare(self, request: Incoming, body: bytes, *, dry_run: bool) -> Act:
        """Returns the checked request as something to call.

        Raises:
            NotFoundError: the path or the subscription does not exist.
            BadRequestError: the request is wrong.
        """
        if request.method != "GET" or dry_run:
            return self._prepare(request, body, dry_run=dry_run)
        # Who waits for a job asks for the same again and again: what was found right once is right.
        key = request.path, request.query_string
        known = self._known.get(key)
        if known is None:
            known = self._prepare(request, body, dry_run=False)
            self._keep(key, known)
        return evolve(known, ask=evolve(known.ask, base=request.base))

    def _keep(self, key: tuple[str, bytes], act: Act) -> None:
        if sum(map(len, key)) <= _KNOWN_BYTES:
            self._known[key] = act
            if len(self._known) > _KNOWN:
                del self._known[next(iter(self._known))]

    def _prepare(self, request: Incoming, body: bytes, *, dry_run: bool) -> Act:
        query = request.query()
        match = self._match(request.method, request.path, query)
        if dry_run and not (isinstance(match.target, Operation) and match.target.id == "Jobs_Create"):
            raise BadRequestError(f"{DRY_RUN} is possible only for creating a job.", code="DryRunNotSupported")
        _check_subscription(match.names)
        _check_narrowing(query, match.target)
        if "api-version" not in query:
            raise BadRequestError("The query has no api-version.", code="MissingApiVersionParameter")
        ask = Ask(request.method, request.path, match.names, query, read_json(body), request.base, dry_run=dry_run)
        if isinstance(match.target, Operation):
            return Act(self._handlers[match.target.id], self._here, self._checked(match.target, ask))
        return Act(match.target, self._here, ask)

    def _checked(self, operation: Operation, ask: Ask) -> Ask:
        """Returns a request to Batch AI with its values checked, its defaults filled in, and unknown fields dropped."""
        _check_version(ask.query["api-version"])
        self._description.check_names(operation, ask.names)
        query = self._description.read_query(operation, ask.query)
        value, unknown = self._description.read_body(operation, ask.body)
        warnings = tuple(f"{at} is not a field of API version {VERSION} and has no effect." for at in unknown)
        return evolve(ask, query=query, body=value, warnings=warnings)

    def _match(self, method: str, path: str, query: Mapping[str, str]) -> Match[Operation | Handler]:
        if method == "GET" and paging.TOKEN in query:
            # Clients follow nextLink with GET, even if they asked for the first page with POST.
            for tried in ("GET", "POST"):
                try:
                    return self._routes.match(tried, path)
                except BadRequestError:
                    continue
        return self._routes.match(method, path)


def _check_subscription(names: Mapping[str, str]) -> None:
    subscription = names.get("subscriptionId") or names.get("subscription")
    if subscription is not None and subscription.lower() != SUBSCRIPTION:
        raise NotFoundError(
            f"The subscription '{subscription}' could not be found; the only one here is {SUBSCRIPTION}.",
            code="SubscriptionNotFound",
        )


def _check_narrowing(query: Mapping[str, str], target: Operation | Handler) -> None:
    """Refuses options that narrow a list and are not heeded: a script may delete what it lists."""
    for name in query:
        if name.lower() in NARROWING and not (name.lower() == FILTER and target in FILTERED):
            raise BadRequestError(
                f"{name} is not supported here; the whole list is at the same URL without it, in pages by nextLink.",
                code="InvalidField",
                target=name,
            )


def _check_version(version: str) -> None:
    if version != VERSION:
        raise BadRequestError(
            f"The api-version '{version}' is not supported for Microsoft.BatchAI; {VERSION} is.",
            code="InvalidApiVersionParameter",
        )
