"""From the reflector into the store: the pipeline, transforms and compression."""
