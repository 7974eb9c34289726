"""Tokens of service accounts: issued by TokenRequests, and authenticated.

They are JSON web tokens like those of a real server, signed with a random key of this
server.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioinformer.model import kube_time
from aioinformer.model.resources import SERVICE_ACCOUNTS
from aioinformer_apiserver.auth.rbac import AUTHENTICATED, User
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.field_errors import FieldError, invalid_error
from aioinformer_apiserver.registry.request_bodies import check_namespace, decode_body
from aioinformer_apiserver.registry.strategy import admit
from aioinformer_apiserver.storage.kinds import SUBRESOURCE_KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer_apiserver.requests.options import WriteOptions
    from aioinformer_apiserver.storage.storage import Storage, StoredObject

__all__ = ["ServiceTokens"]

_REQUEST = Kind(resource=SUBRESOURCE_KINDS["token"])
_ISSUER = "https://kubernetes.default.svc"
_GROUP = "system:serviceaccounts"
_USUAL_SECONDS = 3600
_FEWEST_SECONDS = 600
_MOST_SECONDS = 2**32
_HEAD = {"alg": "HS256", "typ": "JWT"}


class ServiceTokens:
    """Issuer and authenticator of the tokens of one server.

    Args:
        storage: Service accounts.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._key = secrets.token_bytes(32)

    def issue(
        self, namespace: str, name: str, body: object, options: WriteOptions
    ) -> dict[str, Any]:
        """Issue a token for a TokenRequest; a dry run also does, as nothing is stored.

        Args:
            namespace: Namespace of the account.
            name: Name of the account.
            body: Body of the request, decoded or as bytes of JSON.
            options: Options of the write.

        Raises:
            ApiError: 400 or 422 for an invalid body, 404 if the account does not exist.
        """
        got = decode_body(_REQUEST, body, options)
        check_namespace(namespace, got["metadata"])
        account = self._account(namespace, name)
        if account is None:
            raise statuses.not_found(SERVICE_ACCOUNTS, name)

        got = admit(_REQUEST, got, None, options)
        spec = got.get("spec") or {}
        info = spec.get("expirationSeconds")
        seconds = _USUAL_SECONDS if info is None else info
        _check(name, got["metadata"].get("name") or "", seconds)
        now, audiences = _now(), spec.get("audiences") or [_ISSUER]
        token = self._sign(_claims(account, audiences, now, now + seconds))
        whole = {"audiences": audiences, "expirationSeconds": seconds}
        return {
            "kind": _REQUEST.resource.kind,
            "apiVersion": _REQUEST.resource.api_version,
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": account.uid,
                "creationTimestamp": _time(now),
            },
            "spec": {**whole, "boundObjectRef": spec.get("boundObjectRef")},
            "status": {"token": token, "expirationTimestamp": _time(now + seconds)},
        }

    def user_of(self, token: str) -> User | None:
        """Return the account of a token; None if the token is invalid.

        A token is invalid if another server issued it, if it has expired, if it is for
        another audience than the API server, or if its account has been deleted.
        """
        claims = self._claims_of(token)
        if claims is None or claims["exp"] <= _now() or _ISSUER not in claims["aud"]:
            return None

        about = claims["kubernetes.io"]
        namespace, claimed_account = about["namespace"], about["serviceaccount"]
        account = self._account(namespace, claimed_account["name"])
        if account is None or account.uid != claimed_account["uid"]:
            return None

        return User(claims["sub"], (_GROUP, f"{_GROUP}:{namespace}", AUTHENTICATED))

    def _account(self, namespace: str, name: str) -> StoredObject | None:
        accounts = self._storage.collection(SERVICE_ACCOUNTS)
        return accounts.get(f"{namespace}/{name}")

    def _sign(self, claims: Mapping[str, Any]) -> str:
        text = f"{_part(_HEAD)}.{_part(claims)}"
        return f"{text}.{self._signature(text)}"

    def _claims_of(self, token: str) -> dict[str, Any] | None:
        text, _, signature = token.rpartition(".")
        known = self._signature(text).encode()
        # A header may contain bytes that are not UTF-8.
        if not hmac.compare_digest(signature.encode(errors="replace"), known):
            return None

        part = text.partition(".")[2]
        padded = part + "=" * (-len(part) % 4)
        claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(padded))
        return claims

    def _signature(self, text: str) -> str:
        return _encode_base64(
            hmac.digest(self._key, text.encode(errors="replace"), hashlib.sha256)
        )


def _check(name: str, given: str, seconds: int) -> None:
    """Check the options of a TokenRequest.

    Raises:
        ApiError: 422, if the account cannot have such a token.
    """
    if given not in {"", name}:
        why = "must match the service account name if specified"
        raise invalid_error(
            _REQUEST.stored, name, [FieldError.invalid("metadata.name", given, why)]
        )

    why = ""
    if seconds < _FEWEST_SECONDS:
        why = "may not specify a duration less than 10 minutes"
    elif seconds > _MOST_SECONDS:
        why = "may not specify a duration larger than 2^32 seconds"

    if why:
        field = "spec.expirationSeconds"
        raise invalid_error(
            _REQUEST.stored, "", [FieldError.invalid(field, seconds, why)]
        )


def _claims(
    account: StoredObject, audiences: list[str], now: int, expires: int
) -> dict[str, Any]:
    """Return the claims of a token."""
    return {
        "aud": audiences,
        "exp": expires,
        "iat": now,
        "iss": _ISSUER,
        "jti": str(uuid.uuid4()),
        "kubernetes.io": {
            "namespace": account.namespace,
            "serviceaccount": {"name": account.name, "uid": account.uid},
        },
        "nbf": now,
        "sub": f"system:serviceaccount:{account.namespace}:{account.name}",
    }


def _part(value: Mapping[str, Any]) -> str:
    return _encode_base64(json.dumps(value, separators=(",", ":")).encode())


def _encode_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _now() -> int:
    return int(datetime.now(tz=UTC).timestamp())


def _time(seconds: int) -> str:
    return kube_time(datetime.fromtimestamp(seconds, tz=UTC))
