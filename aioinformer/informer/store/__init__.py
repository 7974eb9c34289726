"""Pipeline from the reflector into the store, with transforms and compression."""
