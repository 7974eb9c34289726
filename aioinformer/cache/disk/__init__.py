"""Store on disk, in LMDB: one copy of the objects for all processes of a machine."""
