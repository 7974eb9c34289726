"""Kubernetes API server for tests, in one process and without etcd.

The law of this package: it imitates the server that its users will meet, down to what is
inconvenient, and misbehaves only where a test asks for it. Of `aioinformer` it imports
public names only. Users import it as `aioinformer.testing`.

The map, from what tests touch down to what everything stands on; each folder imports
only from those below it:

    server                  `APIServer`
    arrangement, direct     objects without requests; requests without a network
    registration, arguments custom resources of tests; what tests hand over, checked
    http/                   HTTP in and out, and the handler of each request
    faults/                 scripted faults
    discovery/              discovery, OpenAPI, health
    auth/                   users, RBAC, and access reviews
    reads/                  lists and watches
    registry/               creates, updates, patches, deletions; validation
    crds/                   CustomResourceDefinitions and what they serve
    serialization/          objects as JSON, YAML, partial metadata, or a table
    requests/               parsed requests and their options
    patches/                patches, server-side apply, managed fields
    protobuf/               decoding of the binary encoding
    storage/                objects, versions, history, kinds
    schema/                 OpenAPI schemas, decoding, defaulting, validation
    errors/                 Status errors in the words of a real server
"""
