"""Validation of CustomResourceDefinitions, in the words of a real server.

Valid definitions are only created in a dry run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from custom_definitions import (
    GROUP,
    definition,
    refusal_of,
    version,
)
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp

LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start "
    "with an alphabetic character, and end with an alphanumeric character (e.g. "
    "'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
DOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    "'-' or '.', and must start and end with an alphanumeric character (e.g. "
    "'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
MIXED = f"may have mixed case, but should otherwise match: {LABEL}"
SIMPLE = "must be a simple json path starting with ."
FORMATS = "byte,date,date-time,double,float,int32,int64,password"


def selectable(*paths: str, **types: str) -> dict[str, Any]:
    fields = {name: {"type": kind} for name, kind in types.items()}
    spec = {"type": "object", "properties": fields}
    schema = {"type": "object", "properties": {"spec": spec}}
    chosen = [{"jsonPath": path} for path in paths]
    return definition(GROUP, versions=[version(schema=schema, selectableFields=chosen)])


def approved(how: str) -> dict[str, Any]:
    body = definition("checks.k8s.io")
    body["metadata"]["annotations"] = {"api-approved.kubernetes.io": how}
    return body


def quoted(*names: str, storage: bool) -> str:
    """Return versions as a server quotes them."""
    shown = (
        f'{{"Name":"{name}","Served":true,"Storage":{str(storage).lower()},'
        '"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,'
        '"AdditionalPrinterColumns":null,"SelectableFields":null}'
        for name in names
    )
    return f"[{','.join(shown)}]"


TWINS = f"{quoted('v1', storage=True)[:-1]},{quoted('v1', storage=False)[1:]}"

NAMES = [
    pytest.param(
        {**definition(GROUP), "metadata": {"name": "foo"}},
        [
            (
                'metadata.name: Invalid value: "foo": must be '
                'spec.names.plural+"."+spec.group'
            )
        ],
        id="name",
    ),
    pytest.param(
        definition("foo"),
        ['spec.group: Invalid value: "foo": should be a domain with at least one dot'],
        id="group-without-dot",
    ),
    pytest.param(
        definition(GROUP, scope="Global"),
        [
            (
                'spec.scope: Unsupported value: "Global": supported values: "Cluster", '
                '"Namespaced"'
            )
        ],
        id="scope",
    ),
    pytest.param(
        definition(GROUP, names={"kind": "a_", "listKind": "9", "categories": ["A"]}),
        [
            f'spec.names.singular: Invalid value: "a_": {LABEL}',
            f'spec.names.kind: Invalid value: "a_": {MIXED}',
            f'spec.names.listKind: Invalid value: "9": {MIXED}',
            f'spec.names.categories[0]: Invalid value: "A": {LABEL}',
        ],
        id="names",
    ),
    pytest.param(
        definition(GROUP, names={"kind": ""}),
        [
            "spec.names.singular: Required value",
            "spec.names.kind: Required value",
            "spec.names.listKind: Required value",
        ],
        id="no-kind",
    ),
    pytest.param(
        definition(GROUP, names={"listKind": "Gadget"}),
        [
            (
                'spec.names.listKind: Invalid value: "Gadget": kind and listKind may not be '
                "the same"
            )
        ],
        id="list-kind",
    ),
    pytest.param(
        definition(GROUP, conversion={"strategy": "Foo"}),
        [
            (
                'spec.conversion.strategy: Unsupported value: "Foo": supported values: '
                '"None", "Webhook"'
            )
        ],
        id="conversion",
    ),
    pytest.param(
        definition(""),
        [
            f'metadata.name: Invalid value: "gadgets.": {DOMAIN}',
            "spec.group: Required value",
        ],
        id="no-group",
    ),
    pytest.param(
        {**definition("Foo.org"), "metadata": {"name": "gadgets.foo.org"}},
        [
            (
                'metadata.name: Invalid value: "gadgets.foo.org": must be '
                'spec.names.plural+"."+spec.group'
            ),
            f'spec.group: Invalid value: "Foo.org": {DOMAIN}',
        ],
        id="group",
    ),
    pytest.param(
        definition(GROUP, scope=None), ["spec.scope: Required value"], id="no-scope"
    ),
    pytest.param(
        definition(GROUP, names={"singular": "x" * 64}),
        [
            (
                f'spec.names.singular: Invalid value: "{"x" * 64}": must be no more than 63 '
                "characters"
            )
        ],
        id="long-name",
    ),
    pytest.param(
        definition(GROUP, conversion={"strategy": "Webhook"}),
        [
            (
                "spec.conversion.webhookClientConfig: Required value: required when strategy "
                "is set to Webhook"
            ),
            "spec.conversion.conversionReviewVersions: Required value",
        ],
        id="webhook",
    ),
    pytest.param(
        definition(GROUP, preserveUnknownFields=True),
        [
            (
                "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set "
                "x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema "
                "instead"
            )
        ],
        id="preserve",
    ),
    pytest.param(
        approved("hello"),
        [
            (
                "metadata.annotations[api-approved.kubernetes.io]: Invalid value: "
                '"hello": protected groups must have approval annotation '
                '"api-approved.kubernetes.io" with either a URL or a reason starting with '
                '"unapproved", see https://github.com/kubernetes/enhancements/pull/1111'
            )
        ],
        id="approval",
    ),
    pytest.param(approved("unapproved, tried only"), [], id="unapproved"),
]

VERSIONS = [
    pytest.param(
        definition(GROUP, versions=None),
        [
            (
                "spec.versions: Invalid value: null: must have exactly one version marked as "
                "storage version"
            ),
            (
                "status.storedVersions: Invalid value: null: must have at least one stored "
                "version"
            ),
        ],
        id="none",
    ),
    pytest.param(
        definition(GROUP, versions=[version(storage=False)]),
        [
            (
                f"spec.versions: Invalid value: {quoted('v1', storage=False)}: must have "
                "exactly one version marked as storage version"
            ),
            (
                "status.storedVersions: Invalid value: null: must have at least one stored "
                "version"
            ),
        ],
        id="no-storage",
    ),
    pytest.param(
        definition(GROUP, versions=[version(), version("v2", storage=True)]),
        [
            (
                f"spec.versions: Invalid value: {quoted('v1', 'v2', storage=True)}: must "
                "have exactly one version marked as storage version"
            ),
            (
                'status.storedVersions: Invalid value: ["v1"]: must have the storage version '
                "v2"
            ),
        ],
        id="two-storages",
    ),
    pytest.param(
        definition(GROUP, versions=[version("V_1", storage=True)]),
        [
            f'spec.versions[0].name: Invalid value: "V_1": {LABEL}',
            f'spec.version: Invalid value: "V_1": {LABEL}',
        ],
        id="name",
    ),
    pytest.param(
        definition(GROUP, versions=[{**version(), "schema": None}]),
        ["spec.versions[0].schema.openAPIV3Schema: Required value"],
        id="no-schema",
    ),
    pytest.param(
        definition(GROUP, versions=[version(deprecationWarning="x")]),
        [
            (
                'spec.versions[0].deprecationWarning: Invalid value: "x": can only be set '
                "for deprecated versions"
            )
        ],
        id="warning",
    ),
    pytest.param(
        definition(GROUP, versions=[version(), version("v2", {"type": "string"})]),
        [
            (
                "spec.versions[1].schema.openAPIV3Schema.type: Invalid value: "
                '"string": must be object at the root'
            )
        ],
        id="schemas-differ",
    ),
    pytest.param(
        definition(
            GROUP,
            versions=[
                version(
                    additionalPrinterColumns=[
                        {"name": "a", "type": "foo", "jsonPath": ".a"},
                        {"name": "", "type": "date", "jsonPath": "a", "format": "x"},
                    ]
                )
            ],
        ),
        [
            (
                'spec.additionalPrinterColumns[0].type: Invalid value: "foo": must be one of '
                "boolean,date,integer,number,string"
            ),
            "spec.additionalPrinterColumns[1].name: Required value",
            (
                'spec.additionalPrinterColumns[1].format: Invalid value: "x": must be one of '
                f"{FORMATS}"
            ),
            f'spec.additionalPrinterColumns[1].JSONPath: Invalid value: "a": {SIMPLE}',
        ],
        id="columns",
    ),
    pytest.param(
        definition(
            GROUP,
            versions=[
                version(
                    subresources={
                        "scale": {
                            "specReplicasPath": "spec.n",
                            "statusReplicasPath": ".spec.n",
                            "labelSelectorPath": ".x.y",
                        }
                    }
                )
            ],
        ),
        [
            (
                "spec.subresources.scale.specReplicasPath: Invalid value: "
                f'"spec.n": {SIMPLE}'
            ),
            (
                'spec.subresources.scale.statusReplicasPath: Invalid value: ".spec.n": '
                "should be a json path under .status"
            ),
            (
                'spec.subresources.scale.labelSelectorPath: Invalid value: ".x.y": should be '
                "a json path under either .spec or .status"
            ),
        ],
        id="scale",
    ),
    pytest.param(
        selectable(".spec.a", ".spec.x", ".spec.n", ".spec.a", a="string", n="number"),
        [
            (
                'spec.selectableFields[1].jsonPath: Invalid value: ".spec.x": is an invalid '
                "path: does not refer to a valid field"
            ),
            (
                'spec.selectableFields[2].jsonPath: Invalid value: ".spec.n": must point to '
                "a field of type string, boolean or integer. Enum string fields and strings "
                "with formats are allowed."
            ),
            'spec.selectableFields[3].jsonPath: Duplicate value: ".spec.a"',
        ],
        id="selectable",
    ),
    pytest.param(
        definition(GROUP, versions=[version(), version(storage=False)]),
        [f"spec.versions: Invalid value: {TWINS}: must contain unique version names"],
        id="same-names",
    ),
    pytest.param(
        definition(
            GROUP, versions=[version(subresources={"scale": {}}), version("v2")]
        ),
        [
            "spec.versions[0].subresources.scale.specReplicasPath: Required value",
            "spec.versions[0].subresources.scale.statusReplicasPath: Required value",
        ],
        id="subresources-differ",
    ),
    pytest.param(
        definition(GROUP, versions=[version(additionalPrinterColumns=[{}])]),
        [
            "spec.additionalPrinterColumns[0].name: Required value",
            (
                "spec.additionalPrinterColumns[0].type: Required value: must be one of "
                "boolean,date,integer,number,string"
            ),
            "spec.additionalPrinterColumns[0].JSONPath: Required value",
        ],
        id="empty-column",
    ),
    pytest.param(
        selectable("spec", ".spec.a[0]", "", ".metadata.name", a="string"),
        [
            (
                'spec.selectableFields[0].jsonPath: Invalid value: "spec": is an invalid '
                "path: expected [ or . but got: spec"
            ),
            (
                'spec.selectableFields[1].jsonPath: Invalid value: ".spec.a[0]": is an '
                "invalid path: array notation is not allowed"
            ),
            "spec.selectableFields[2].jsonPath: Required value",
            (
                'spec.selectableFields[3].jsonPath: Invalid value: ".metadata.name": is an '
                "invalid path: does not refer to a valid field"
            ),
        ],
        id="selectable-paths",
    ),
    pytest.param(
        selectable(
            *[f".spec.{name}" for name in "abcdefghi"],
            **dict.fromkeys("abcdefghi", "string"),
        ),
        ["spec.selectableFields: Too many: 9: must have at most 8 items"],
        id="selectable-many",
    ),
    pytest.param(
        definition(
            GROUP,
            versions=[version(selectableFields=[{"jsonPath": ".a"}]), version("v2")],
        ),
        [
            (
                'spec.versions[0].selectableFields: Invalid value: "": may only be set when '
                "`version.schema.openAPIV3Schema` is not included"
            )
        ],
        id="selectable-differ",
    ),
]


@each_case("body, problems", NAMES)
async def test_definition_with_invalid_names_is_rejected(
    http: aiohttp.ClientSession, body: dict[str, Any], problems: list[str]
) -> None:
    assert await refusal_of(http, body) == problems


@each_case("body, problems", VERSIONS)
async def test_definition_with_invalid_versions_is_rejected(
    http: aiohttp.ClientSession, body: dict[str, Any], problems: list[str]
) -> None:
    assert await refusal_of(http, body) == problems
