"""
What handlers do outside, once: known by a key, reserved under the fence, then done.

Who died at it leaves it unknown, and the next one is told so.
"""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model.draws import numbers, ticks
from tests.model.model import Queue
from tests.model.player import Player
from tests.model.rows import Effect, Held

keys = st.sampled_from("uvwxyz")


class Effects(Queue):
    """What the statements do."""

    def reserve_effect(self, key: str, held: Held) -> tuple[str, int | None, Any]:
        """Only for a job that still runs; it takes over what nobody is at any more."""
        if not self.holds(held):
            return "lost", None, None
        effect = self.effect_keys.get(key)
        if effect is None:
            self.effect_keys[key] = Effect(key, *held, self.now)
            return "new", None, None
        if effect.done_at is not None:
            return "done", None, effect.result
        if effect.job_id != held[0] and self.holds((effect.job_id, effect.fence)):
            return "taken", effect.job_id, None
        self.effect_keys[key] = Effect(key, *held, self.now)
        return "unknown", None, None

    def finish_effect(self, key: str, held: Held, result: dict[str, Any]) -> list[tuple[str]]:
        """Only by whom it is reserved for, and who still runs; the first word stays."""
        effect = self.effect_keys.get(key)
        if effect is None or (effect.job_id, effect.fence) != held or self.mine(held) is None:
            return []
        effect.done_at = self.now if effect.done_at is None else effect.done_at
        effect.result = result if effect.result is None else effect.result
        return [(key,)]

    def release_effect(self, key: str, held: Held) -> list[tuple[str]]:
        """Only by whom it is reserved for, and who still runs; what is done stays done."""
        effect = self.effect_keys.get(key)
        if effect is None or (effect.job_id, effect.fence) != held or self.mine(held) is None:
            return []
        if effect.done_at is not None:
            return []
        del self.effect_keys[key]
        return [(key,)]

    def prune_effects(self, age: timedelta, most: int) -> int:
        """Forget what was done long ago, and nothing that was not done."""
        old = [
            effect
            for effect in self.effect_keys.values()
            if effect.done_at is not None and effect.done_at <= self.now - age
        ]
        for effect in old[:most]:
            del self.effect_keys[effect.key]
        return len(old[:most])


class EffectMoves(Player):
    """Calls of them."""

    @rule(
        tick=ticks,
        pick=numbers,
        key=keys,
        then=st.sampled_from(("is done", "is left", "is refused")),
    )
    def once(self, tick: timedelta, pick: int, key: str, then: str) -> None:
        self.model.now += tick
        [held] = self.leases_of([pick])
        self.reserve_effect(key, held)
        if then == "is done":
            self.finish_effect(key, held)
        if then == "is refused":
            self.release_effect(key, held)

    @rule(pick=numbers, is_done=st.booleans(), refused=st.booleans())
    def too_late(self, pick: int, *, is_done: bool, refused: bool) -> None:
        """What is done is given back, or a job that has ended says what became of it."""
        key, held = f"new {len(self.leases)}", self.live_lease(pick)
        self.reserve_effect(key, held)
        if is_done:
            self.finish_effect(key, held)
        else:
            self.settle_succeeded([held])
        end = self.release_effect if refused or is_done else self.finish_effect
        end(key, held)

    @rule(pick=numbers, by_another=st.booleans(), finishes=st.booleans(), refused=st.booleans())
    def die_at_it(self, pick: int, *, by_another: bool, finishes: bool, refused: bool) -> None:
        """A worker falls silent after it has reserved; its job or another one finds that, and it is back."""
        key, held = f"new {len(self.leases)}", self.live_lease(pick)
        self.reserve_effect(key, held)
        self.lose_leases()
        takers = [
            (job.id, job.fence) for job in self.running() if by_another != (job.id == held[0])
        ]
        for each in takers[:1]:
            self.reserve_effect(key, each)
        end = self.release_effect if refused else self.finish_effect
        for each in [held, *(takers[:1] if finishes else ())]:
            end(key, each)

    def reserve_effect(self, key: str, held: Held) -> None:
        expected = [self.model.reserve_effect(key, held)]
        self.call("reserve_effect", key, *held, expected=expected)

    def release_effect(self, key: str, held: Held) -> None:
        expected = self.model.release_effect(key, held)
        self.call("release_effect", key, *held, expected=expected)

    def finish_effect(self, key: str, held: Held) -> None:
        result = {"fence": held[1]}
        expected = self.model.finish_effect(key, held, result)
        self.call("finish_effect", key, *held, result, expected=expected)
