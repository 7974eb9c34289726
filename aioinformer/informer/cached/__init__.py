"""Informers with a store on disk: one process writes it, all of them follow it."""
