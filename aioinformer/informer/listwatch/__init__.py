"""Lists and watches: the reflector and its decisions, independent of the client."""
