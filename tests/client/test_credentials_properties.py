"""Credentials held against what may happen to them, in any order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from aioinformer.client import Credentials
from aioinformer.client.credentials import RETRY_SECONDS
from aioinformer.client.proof import Proof
from aioinformer.errors import OptionsError

# How long what the source gives is fresh, and valid.
FRESH, VALID = 80.0, 100.0

# A pause in seconds, or what is done.
STEPS = st.one_of(
    st.sampled_from([1.0, 9.0, 11.0, 79.0, 81.0, 101.0]),
    st.sampled_from(["ask", "refuse", "refuse an old one", "break", "mend"]),
)


@dataclass
class World:
    """A source, and what is known of what it did."""

    broken: bool = False
    failed: bool = False
    asked_at: list[float] = field(default_factory=list)
    given_at: list[float] = field(default_factory=list)

    async def proof(self) -> Proof:
        now = asyncio.get_running_loop().time()
        self.asked_at.append(now)
        self.failed = self.broken
        if self.broken:
            raise OptionsError("broken")

        self.given_at.append(now)
        return Proof(
            authorization=str(len(self.given_at)),
            fresh_seconds=FRESH,
            valid_seconds=VALID,
        )

    def age(self) -> float:
        """Of the newest that was given, in seconds."""
        now = asyncio.get_running_loop().time()
        return now - self.given_at[-1] if self.given_at else float("inf")

    async def ask(self, credentials: Credentials) -> Proof | None:
        age, asked, failed = self.age(), len(self.asked_at), self.failed
        tried = self.asked_at[-1] if self.asked_at else -float("inf")
        now = asyncio.get_running_loop().time()
        try:
            proof = await credentials.proof()
        except OptionsError:
            assert self.broken
            assert age >= VALID
            return None

        renewed = len(self.asked_at) - asked
        assert proof.authorization == str(len(self.given_at)), "not the newest"
        assert self.age() < VALID, "used when it was not valid any more"
        assert renewed <= 1
        if age < FRESH and not failed:
            assert not renewed, "renewed before it was time"

        if age >= FRESH and now - tried >= RETRY_SECONDS:
            assert renewed, "not renewed when it was time"

        return proof

    async def refuse(self, credentials: Credentials, refused: Refused) -> None:
        newest, asked = str(len(self.given_at)), len(self.asked_at)
        better = await credentials.invalidate(refused.proof)
        renewed = len(self.asked_at) - asked
        assert renewed == (refused.asked == asked), "looked for, or not, in vain"
        newer = refused.proof.authorization != newest
        assert better == (newer or (renewed and not self.broken))


@dataclass(frozen=True)
class Refused:
    """A proof, and how often the source had been asked when it was given."""

    proof: Proof
    asked: int


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=30))
async def test_the_newest_valid_proof_is_used_whatever_happens(
    steps: list[float | str],
) -> None:
    world = World()
    credentials = Credentials(source=world.proof)
    seen: list[Refused] = []
    for step in steps:
        match step:
            case "ask":
                proof = await world.ask(credentials)
                given = len(world.asked_at)
                seen += [Refused(proof, given)] if proof is not None else []
            case "refuse" if seen:
                await world.refuse(credentials, seen[-1])
            case "refuse an old one" if seen:
                await world.refuse(credentials, seen[0])
            case "break" | "mend":
                world.broken = step == "break"
            case float():
                await asyncio.sleep(step)
            case _:
                pass  # nothing was given yet that could be refused
