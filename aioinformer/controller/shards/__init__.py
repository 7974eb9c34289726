"""Shards: which replica of a controller works on which range of hashes.

`member.Member` decides for one replica, and `lease.ShardLease` is what replicas know of each
other. All of it is pure: times are arguments, and nothing here sends, waits or logs.
"""
