"""Shards: which replica of a controller works on which range of hashes.

`member.Member` decides for one replica, and `lease.ShardLease` is what replicas know of each
other. These modules are pure: times are arguments, and they neither send, wait nor log.
`replica.Replica` performs the decisions during one run of `shards.Shards`: it follows the
Leases by `lease_watch.LeaseWatch`, sends writes, and tells users.
"""
