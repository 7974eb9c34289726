"""Shards: which replica of a controller works on which range of hashes.

`member.Member` decides for one replica, and `lease.ShardLease` is what replicas know of
each other. These modules are pure: times are arguments, and they neither send, wait nor
log. `replica.Replica` performs the decisions during one run of `shards.Shards`: it
follows the Leases by `lease_watch.LeaseWatch`, sends writes, and tells users.

To drive a member without `replica`:

1. Watch the Leases with the label `aioinformer.dev/shards: <group>`, in one ordered watch.
   Call `lease_seen()` and `lease_gone()` for each change, and `synced()` after each list.
2. Call `step()` after every input, and when the clock passes `next_due`. Do the
   commands that it returns, in their order. Each call may change `next_due`.
3. Send each `Write` in a task of its own, and call `answered()` exactly once. Give up after
   `timing.retry_period` seconds with `Outcome.NO_ANSWER`; also for every error that
   does not prove that nothing was written. A write with `verb` "create" or "update"
   sends `lease.body()`; "delete" sends only the name, with the uid as a precondition.
   If the server answered with an error, pass `retry_after`.
4. Work only on keys of ranges for which `owns()` is True, and ask again before each
   write to the API. `Start` begins or resumes a range, `Drain` takes nothing new of it,
   `Cancel` cancels what is in work. When nothing of a drained or cancelled range is in
   work any more, call `ended()`. If a write of drained work had no answer, call it
   `timing.longest_flight` later. After a pause of the process, `owns()` is False before
   `step()` has run.
5. To end, call `leave()`, go on as before, and stop once `state` is `LEFT`.
   If `refusal` is set, the member leaves by itself. Raise the text as an OptionsError.

All times are seconds of one monotonic clock. Where the machine may be suspended, use one
that goes on meanwhile, such as `CLOCK_BOOTTIME` of Linux.

What keeps two replicas apart:

- A range belongs to the epoch of a member that its fence names. The fence is written only
  on the version that was seen, and work starts only after the answer.
- Before a fence is taken from a member, the member is expelled: its Lease is written
  without a holder, which fails if it has renewed meanwhile. `timing.ShardTiming` makes sure
  that all its work has ended by then.
- The deadline of a member counts from the newest renewal that its own watch has shown.
  So it has also seen whatever happened to its fences before that.
- A member that lost its ranges joins in a new epoch when all its work has ended. That frees
  the fences of the old one.
- A range changes hands by drain, release and acquire, in that order.
- An absent fence is created as free, and belongs to nobody until an update of what the
  watch has shown. A creation cannot tell "still absent" from "absent again":
  `GroupView.free_at` waits for an owner whose fence was deleted, and for owners of
  before the own list.

What remains: who writes a holder by hand, or restores Leases from a backup, can give a
range to two members until their watches show it. Deleting Leases is safe, also all at once
and repeatedly, with two exceptions: every owner is cut off from the API, and another
replica starts at that moment; or a fence of a new group is deleted within a second
after it was taken, its owner does not see that, and another replica starts at that
moment.
"""
