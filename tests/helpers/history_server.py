"""A server that keeps all its states: it can be stale, compacted, restored, or gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from fake_source import added, deleted, modified, thing

from aioinformer.errors import Invalid, NotFound, ResourceExpired, ServerError

if TYPE_CHECKING:
    from aioinformer.model import KubeObject
    from aioinformer.watch import ListOptions, WatchEvent, WatchOptions

State: TypeAlias = "dict[str, KubeObject]"

FIRST = 1
"""The version of the initial empty state; 0 would mean no version."""

EXPIRED = ResourceExpired("too old", status=410)
TOO_LARGE = ServerError(
    "wait",
    status=504,
    details={"causes": [{"reason": "ResourceVersionTooLarge"}]},
)
NOT_SERVED = NotFound("no such resource", status=404)
NO_STREAMS = Invalid("sendInitialEvents is forbidden", status=422)


class HistoryServer:
    """States and the events between them; every write makes a version.

    Attributes:
        states: The states; the first has version `FIRST`, each next one the next
            version.
        events: The events; the n-th one leads from the n-th state to the next.
        oldest: Version after which events can be watched.
        born: Minimum version of lists.
        era: Number of restores.
        served: False while the resource does not exist.
        streams: Handling of a request for initial events: `"yes"`, `"refused"`, or
            `"ignored"`, a normal watch without an end of initial events.
    """

    def __init__(self) -> None:
        self.states: list[State] = [{}]
        self.events: list[WatchEvent] = []
        self.oldest = FIRST
        self.born = FIRST
        self.era = 0
        self.served = True
        self.streams = "yes"

    @property
    def newest(self) -> int:
        return FIRST + len(self.events)

    def state(self, version: int) -> State:
        return self.states[version - FIRST]

    def since(self, version: int) -> list[WatchEvent]:
        """Return the events after a version."""
        return self.events[version - FIRST :]

    # ------------------------------------------------------------ what befalls it

    def write(self, name: str) -> None:
        version = self.newest + 1
        before = self.states[-1].get(f"default/{name}")
        uid = before.uid if before is not None else f"uid-{self.era}-{version}"
        # The same version of the same object is another state in another era.
        obj = thing(name, version, uid, spec={"nodeName": f"node-{self.era}"})
        self._next(added(obj) if before is None else modified(obj), obj.key, obj)

    def delete(self, name: str) -> None:
        gone = self.states[-1].get(f"default/{name}")
        if gone is not None:
            obj = thing(name, self.newest + 1, gone.uid)
            self._next(deleted(obj), obj.key, None)

    def _next(self, event: WatchEvent, key: str, obj: KubeObject | None) -> None:
        state = {k: v for k, v in self.states[-1].items() if k != key}
        self.states.append(state if obj is None else state | {key: obj})
        self.events.append(event)

    def forget(self, keep: int) -> None:
        """Keep only the given number of the last events."""
        self.oldest = max(self.oldest, self.newest - keep)

    def go_back(self, versions: int) -> None:
        """Restore a backup: the given number of last versions is undone."""
        left = max(len(self.events) - versions, 0)
        del self.states[left + 1 :]
        del self.events[left:]
        self.oldest = min(self.oldest, self.newest)
        self.born = min(self.born, self.newest)
        self.era += 1

    def go_away(self) -> None:
        """Remove the resource with all its objects."""
        for obj in list(self.states[-1].values()):
            self.delete(obj.name)

        self.served = False

    def come_again(self) -> None:
        """Serve the resource again, without its former objects."""
        if not self.served:
            self.served = True
            self.oldest = self.born = self.newest

    # ------------------------------------------------------------ what it answers

    def list_from(self, options: ListOptions, staleness: int) -> tuple[int, str]:
        """Return the version of a page's state, and the key after which it starts.

        Raises:
            ApiError: The request is refused.
        """
        if not self.served:
            raise NOT_SERVED

        stale = max(self.newest - staleness, self.born)
        if options.continue_token:
            era, version, after = options.continue_token.split(":")
            if int(era) != self.era or int(version) < self.oldest:
                raise EXPIRED

            return int(version), after

        match options.resource_version, options.resource_version_match:
            case "", "":
                return self.newest, ""
            case "0", "":
                return stale, ""
            case version, "NotOlderThan":
                return self._not_older(int(version), stale), ""
            case unknown:
                raise AssertionError(unknown)

    def page(
        self, version: int, after: str, limit: int
    ) -> tuple[list[KubeObject], str]:
        """Return the objects of a page, and the token of the next one."""
        state = self.state(version)
        keys = sorted(key for key in state if key > after)
        page = keys[: limit or None]
        token = f"{self.era}:{version}:{page[-1]}" if len(page) < len(keys) else ""
        return [state[key] for key in page], token

    def stream_from(self, options: WatchOptions, staleness: int) -> int:
        """Return the version of the initial objects of a stream.

        Raises:
            ApiError: The request is refused.
        """
        assert options.send_initial_events
        assert options.bookmarks
        if not self.served:
            raise NOT_SERVED

        if self.streams == "refused":
            raise NO_STREAMS

        stale = max(self.newest - staleness, self.born, self.oldest)
        if not options.resource_version:
            return stale  # later changes come before the end

        return self._not_older(int(options.resource_version), stale)

    def _not_older(self, version: int, stale: int) -> int:
        if version > self.newest:
            raise TOO_LARGE

        return max(stale, version)

    def check_watch(self, version: int) -> None:
        """Return whether events after a version can be watched.

        Raises:
            ApiError: They cannot.
        """
        if not self.served:
            raise NOT_SERVED

        if version < self.oldest:
            raise EXPIRED
