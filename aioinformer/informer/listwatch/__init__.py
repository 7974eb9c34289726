"""Listing and watching: the reflector and what it decides, without the client."""
