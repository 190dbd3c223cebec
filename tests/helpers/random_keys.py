"""Which keys of JAX's random numbers a training uses: none may be used twice."""

from typing import Any

import jax
import numpy as np

DRAWN_BY_FLAX = 40  # numbers of keys that an agent's weights ask for at most


class Keys:
    """Collects keys inside and outside of compiled functions."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[int, ...]]] = {}

    def note(self, purpose: str, keys: Any) -> None:
        """Notes keys, of the new kind or (..., 2) numbers, when the program comes to this place."""
        if jax.dtypes.issubdtype(keys.dtype, jax.dtypes.prng_key):
            keys = jax.random.key_data(keys)

        def keep(numbers: Any) -> None:
            rows = np.asarray(numbers).reshape(-1, 2).tolist()
            self.found.setdefault(purpose, []).extend(map(tuple, rows))

        jax.debug.callback(keep, keys)

    def spy(self, patch: Any, owner: Any, name: str, position: int) -> None:
        """From now on notes the argument at a position of a function; its name is the purpose."""
        original = getattr(owner, name)

        def spying(*arguments: Any, **options: Any) -> Any:
            self.note(name, arguments[position])
            return original(*arguments, **options)

        patch.setattr(owner, name, spying)

    def spy_on_weights(self, patch: Any, nnx: Any) -> None:
        """From now on notes the keys that weights are drawn with."""
        original = nnx.Rngs

        def spying(key: Any) -> Any:
            root = jax.random.key(key) if isinstance(key, int) else key
            for number in range(DRAWN_BY_FLAX):
                self.note("weights", jax.random.fold_in(root, number))
            return original(key)

        patch.setattr(nnx, "Rngs", spying)

    def assert_distinct(self, purposes: set[str]) -> None:
        """No key serves twice, and there are some for each purpose."""
        jax.effects_barrier()
        assert self.found.keys() == purposes
        users: dict[tuple[int, ...], list[str]] = {}
        for purpose, keys in self.found.items():
            for key in keys:
                users.setdefault(key, []).append(purpose)
        twice = [tuple(names) for names in users.values() if len(names) > 1]
        assert not twice, f"{len(twice)} keys are used more than once: {sorted(set(twice))[:5]}"
