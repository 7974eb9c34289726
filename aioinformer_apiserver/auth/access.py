"""`AccessControl`: authentication, impersonation and authorization."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioinformer.errors import Forbidden
from aioinformer_apiserver.auth.rbac import (
    AUTHENTICATED,
    MASTERS,
    UNAUTHENTICATED,
    RBACAuthorizer,
    User,
)
from aioinformer_apiserver.auth.service_tokens import ServiceTokens
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.requests.routes import RequestInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer_apiserver.requests.request import APIRequest
    from aioinformer_apiserver.storage.storage import Storage

__all__ = ["AccessControl"]

_ADMIN = User("kubernetes-admin", (MASTERS, AUTHENTICATED))
_ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
_ACCOUNT = "system:serviceaccount:"
_ACCOUNTS = "system:serviceaccounts"
_NODE = "system:node:"
# API group of impersonated users in rules for constrained impersonation.
_NEWER_GROUP = "authentication.k8s.io"


class AccessControl:
    """Authenticator of users by their tokens, and authorizer by their roles.

    Args:
        storage: Roles and bindings.
        token: Token of an administrator; None for no such token. Without token and
            users, everyone is an administrator.
        users: Further users by token.
    """

    def __init__(
        self, storage: Storage, *, token: str | None, users: Mapping[str, User]
    ) -> None:
        self.token = token
        self.authorizer: RBACAuthorizer = RBACAuthorizer(storage)
        self.service_tokens: ServiceTokens = ServiceTokens(storage)
        self.users: dict[str, User] = dict(users)

    def authenticate(self, request: APIRequest, info: RequestInfo) -> User:
        """Return the user of a request, or the user that the request impersonates.

        Without tokens in the server, everyone except service accounts is an
        administrator. With tokens, requests without one are anonymous, the default of a
        kube-apiserver.

        Raises:
            ApiError: 401 for an unknown token, 400 for impersonated groups without a
                user, 403 if the user may not impersonate the other one.
        """
        user = self._bearer(request)
        target = _impersonated_user(request)
        if target is None:
            return user

        try:
            for it in _impersonation_permissions(target, "impersonate"):
                self.authorize(user, it)
        except Forbidden:
            # They may have permissions for constrained impersonation, which also name
            # the action. The error message is about these.
            mode = _impersonation_mode(target)
            self.authorize(
                user, replace(info, verb=f"impersonate-on:{mode}:{info.verb}")
            )
            for it in _impersonation_permissions(target, f"impersonate:{mode}"):
                self.authorize(user, replace(it, group=_NEWER_GROUP))

        return _with_default_groups(target)

    def user_of(self, token: str) -> User | None:
        """Return the user of a token; None if it is unknown."""
        if token and token == self.token:
            return _ADMIN

        user = self.users.get(token) or self.service_tokens.user_of(token)
        if user is None or AUTHENTICATED in user.groups:
            return user

        return User(user.name, (*user.groups, AUTHENTICATED))

    def authorize(self, user: User, info: RequestInfo) -> None:
        """Check that a user may send a request.

        Raises:
            ApiError: 403, if they may not.
        """
        denial = self.authorizer.denial(user, info)
        if denial is None:
            return

        if not info.version:
            why = f'User "{user.name}" cannot {info.verb} path "{info.path}"'
            raise statuses.failure(403, "Forbidden", f"forbidden: {why}{denial}")

        raise _forbidden_error(user, info, denial)

    def _bearer(self, request: APIRequest) -> User:
        scheme, token, *_ = [
            *request.headers.get("Authorization", "").split(" "),
            "",
            "",
        ]
        if self.token is None and not self.users:
            return self.service_tokens.user_of(token) or _ADMIN

        if scheme.lower() != "bearer" or not token:
            return _ANONYMOUS

        user = self.user_of(token)
        if user is None:
            raise statuses.unauthorized()

        return user


# ---------------------------------------------------------------- impersonation


def _impersonated_user(request: APIRequest) -> User | None:
    """Return the user in the impersonation headers; None without such headers.

    Raises:
        ApiError: 400, if there are groups but no user.
    """
    name = request.headers.get("Impersonate-User", "")
    given = request.headers.get("Impersonate-Group", "").split(",")
    groups = tuple(it.strip() for it in given if it.strip())
    if name:
        return User(name, groups)

    if groups:
        shown = ", ".join(f'"{it}"' for it in groups)
        raise statuses.bad_request(
            f'requested &user.DefaultInfo{{Name:"", UID:"", Groups:[]string{{{shown}}}, '
            "Extra:map[string][]string(nil)} without impersonating a user name"
        )

    return None


def _service_account(user: User) -> tuple[str, str] | None:
    """Return namespace and name of a service account; None for other users."""
    namespace, slash, name = user.name.removeprefix(_ACCOUNT).partition(":")
    is_one = user.name.startswith(_ACCOUNT) and namespace and slash and name
    return (namespace, name) if is_one else None


def _impersonation_mode(target: User) -> str:
    """Return the kind of constrained impersonation."""
    if _service_account(target):
        return "serviceaccount"

    return "arbitrary-node" if target.name.startswith(_NODE) else "user-info"


def _impersonation_permissions(target: User, verb: str) -> Iterator[RequestInfo]:
    """Yield the permissions that are needed to impersonate a user."""
    account = _service_account(target)
    if account:
        plural, (namespace, name) = "serviceaccounts", account
    else:
        plural, namespace, name = "users", "", target.name

    yield RequestInfo(
        verb=verb, version="v1", plural=plural, namespace=namespace, name=name
    )
    for group in target.groups:
        yield RequestInfo(verb=verb, version="v1", plural="groups", name=group)


def _with_default_groups(target: User) -> User:
    """Add the groups that a real server adds to an impersonated user."""
    groups = target.groups
    account = _service_account(target)
    if account and not groups:
        groups = (_ACCOUNTS, f"{_ACCOUNTS}:{account[0]}")

    if target.name == _ANONYMOUS.name:
        added = UNAUTHENTICATED
    elif UNAUTHENTICATED in groups:
        return target
    else:
        added = AUTHENTICATED

    return User(target.name, groups if added in groups else (*groups, added))


# ---------------------------------------------------------------- errors


def _forbidden_error(user: User, info: RequestInfo, denial: str) -> Exception:
    """Make the 403 for a resource request."""
    group, plural = info.group, info.plural
    what = f"{plural}.{group}" if group else plural
    named = f'{what} "{info.name}"' if info.name else what
    whole = f"{plural}/{info.subresource}" if info.subresource else plural
    place = f'in the namespace "{info.namespace}"'
    message = (
        f'{named} is forbidden: User "{user.name}" cannot {info.verb} resource '
        f'"{whole}" in API group "{group}" '
        f"{place if info.namespace else 'at the cluster scope'}{denial}"
    )
    details = {"name": info.name, "group": group, "kind": plural}
    return statuses.failure(
        403, "Forbidden", message, {k: v for k, v in details.items() if v}
    )
