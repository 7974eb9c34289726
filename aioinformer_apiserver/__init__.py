"""Kubernetes API server for tests, in one process and without etcd.

The law of this package: it imitates the server that its users will meet, down to what is
inconvenient, and misbehaves only where a test asks for it. Of `aioinformer` it imports
public names only. Users import it as `aioinformer.testing`.

The map, from what tests touch down to what everything stands on; each folder imports
only from those below it:

    server                  `APIServer`
    arrangement, direct     objects without requests; requests without a network
    registration, arguments custom resources of tests; what tests hand over, checked
    serving/                HTTP in and out, and what is done about each request
    faults/                 scripted misbehaviour
    documents/              discovery, OpenAPI, health
    access/                 users, roles, and questions about rights
    reading/                lists and watches
    writing/                from a body to a stored object, and its deletion
    definitions/            custom resources, as their definitions say
    showing/                objects as JSON, YAML, metadata alone, or a table
    requests/               what a request asks for
    patching/               patches, server-side apply, managed fields
    protobuf/               reads the binary encoding
    storing/                objects, versions, history, kinds
    schema/                 what each kind's objects look like; defaults and checks
    refusals/               the words of a real server
"""
