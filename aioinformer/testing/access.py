"""Access: who asks, and may they? Before anything is looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.testing import statuses
from aioinformer.testing.rbac import (
    AUTHENTICATED,
    MASTERS,
    UNAUTHENTICATED,
    Rulebook,
    User,
)
from aioinformer.testing.routes import Attributes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.testing.calls import Call
    from aioinformer.testing.storage import Storage

__all__ = ["Access"]

_ADMIN = User("kubernetes-admin", (MASTERS, AUTHENTICATED))
_ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


class Access:
    """Knows the users by their tokens, and lets them do what their roles allow.

    Args:
        storage: Holds the roles and bindings.
        token: Of an administrator; None if nobody needs one.
        users: Further users, by their tokens.
    """

    def __init__(
        self, storage: Storage, *, token: str | None, users: Mapping[str, User]
    ) -> None:
        self.token = token
        self.rulebook = Rulebook(storage)
        self._users = dict(users)

    def user_of(self, call: Call) -> User:
        """Find out who asks.

        A server without tokens takes everyone for an administrator. One with tokens
        takes who has none for anonymous, as a kube-apiserver does by default.

        Raises:
            ApiError: 401 for a token that nobody has; 403 for somebody who may not
                impersonate whom they want to.
        """
        user = self._bearer(call)
        wanted = call.headers.get("Impersonate-User", "")
        if not wanted:
            return user

        for plural, name in [("users", wanted), *_groups_of(call)]:
            self.check(
                user,
                Attributes(verb="impersonate", version="v1", plural=plural, name=name),
            )

        groups = (*(name for _, name in _groups_of(call)), AUTHENTICATED)
        return User(wanted, groups)

    def holder_of(self, token: str) -> User | None:
        """Return the user whose token this is; None if nobody has it."""
        if token and token == self.token:
            return _ADMIN

        user = self._users.get(token)
        if user is None or AUTHENTICATED in user.groups:
            return user

        return User(user.name, (*user.groups, AUTHENTICATED))

    def check(self, user: User, asked: Attributes) -> None:
        """Check that `user` may do what is `asked`.

        Raises:
            ApiError: 403, if they may not.
        """
        problem = self.rulebook.problem(user, asked)
        if problem is None:
            return

        if not asked.version:
            why = f'User "{user.name}" cannot {asked.verb} path "{asked.path}"'
            raise statuses.failure(403, "Forbidden", f"forbidden: {why}{problem}")

        raise _denied(user, asked, problem)

    def _bearer(self, call: Call) -> User:
        scheme, _, token = call.headers.get("Authorization", "").partition(" ")
        if self.token is None and not self._users:
            return _ADMIN

        if scheme.lower() != "bearer" or not token.strip():
            return _ANONYMOUS

        user = self.holder_of(token.strip())
        if user is None:
            raise statuses.unauthorized()

        return user


def _groups_of(call: Call) -> list[tuple[str, str]]:
    given = call.headers.get("Impersonate-Group", "")
    return [("groups", name.strip()) for name in given.split(",") if name.strip()]


def _denied(user: User, asked: Attributes, problem: str) -> Exception:
    """Make the refusal of something about a resource."""
    group, plural = asked.group, asked.plural
    what = f"{plural}.{group}" if group else plural
    named = f'{what} "{asked.name}"' if asked.name else what
    whole = f"{plural}/{asked.subresource}" if asked.subresource else plural
    place = f'in the namespace "{asked.namespace}"'
    message = (
        f'{named} is forbidden: User "{user.name}" cannot {asked.verb} resource '
        f'"{whole}" in API group "{group}" '
        f"{place if asked.namespace else 'at the cluster scope'}{problem}"
    )
    details = {"name": asked.name, "group": group, "kind": plural}
    return statuses.failure(
        403, "Forbidden", message, {k: v for k, v in details.items() if v}
    )
