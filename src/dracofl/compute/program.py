"""The compiled program: one XLA call plays one block in a lane's workspace, which it is given and gives back.

It also looks at every update, and at every vector that will be put back, for values that are not finite. What it does
not look at is read by nobody, or went into one of those.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp

from dracofl.compute.blocks import Shape
from dracofl.compute.plan import WORTH_ADDING
from dracofl.compute.problem import COMPILER_OPTIONS, Problem

Program: TypeAlias = jax.stages.Wrapped
State: TypeAlias = tuple[jax.Array, jax.Array]
"""Workspace and largest number."""

_TERMS_AT_ONCE = (WORTH_ADDING, 4, 2, 1)
NOT_FINITE = 0x7F80_0000
"""The bits of infinity: those of every finite float32, less its sign, are a smaller integer."""


def compile_program(problem: Problem, shape: Shape) -> Program:
    """(workspace, store, pool, code, weights, batches) -> workspace, the old one's memory used again, and the bits of
    the largest number seen, which are `NOT_FINITE` or more where one was not finite.

    Loops run as often as the block says, so that one program serves every block, full or not. A sum over the true
    number of terms is faster than one padded to the largest.
    """
    sections = shape.sections()
    parameters = problem.parameter_count

    def row(array: jax.Array, index: jax.Array) -> jax.Array:
        vector: jax.Array = jax.lax.dynamic_index_in_dim(array, index, keepdims=False)
        return vector

    def put(workspace: jax.Array, index: jax.Array, vector: jax.Array) -> jax.Array:
        changed: jax.Array = jax.lax.dynamic_update_index_in_dim(workspace, vector, index, 0)
        return changed

    def play(
        workspace: jax.Array,
        store: jax.Array,
        pool: tuple[jax.Array, ...],
        code: jax.Array,
        weights: jax.Array,
        batches: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        part = {name: code[section] for name, section in sections.items()}
        fetches, groups, kept = part["counts"]
        # The compiler would fuse a product and the sum it goes into, and round once where NumPy rounds twice. It may
        # fuse the product with this instead, which is -0 and changes no number, but the compiler cannot know. So this
        # executor's bits are the reference executor's.
        nothing = weights[shape.terms]

        def fetch(index: jax.Array, workspace: jax.Array) -> jax.Array:
            return put(workspace, part["fetch_to"][index], row(store, part["fetch_from"][index]))

        def combine(index: jax.Array, workspace: jax.Array) -> jax.Array:
            first, end = part["combine_terms"][index], part["combine_terms"][index + 1]

            total = weights[first] * row(workspace, part["term_rows"][first])
            start, left = first + 1, end - first - 1
            # Still one after the other, but the sum so far is read and written once for several.
            for count in _TERMS_AT_ONCE:

                def add(turn: jax.Array, total: jax.Array, start: jax.Array = start, count: int = count) -> jax.Array:
                    for term in range(count):
                        place = start + turn * count + term
                        product = weights[place] * row(workspace, part["term_rows"][place]) + nothing
                        total = total + product
                    return total

                turns = left // count
                total = jax.lax.fori_loop(0, turns, add, total)
                start, left = start + turns * count, left - turns * count
            return put(workspace, part["combine_to"][index], total)

        def train_one(place: jax.Array, workspace: jax.Array) -> jax.Array:
            def take(place: jax.Array, _: jax.Array) -> jax.Array:
                return row(workspace, part["train_from"][place])

            # Where more than a few operations are ready at once, another thread is asked to help. Taken in a loop of
            # one turn, the model's parts are not ready before all else that a training begins with is done.
            model = jax.lax.fori_loop(place, place + jnp.minimum(groups, 1), take, jnp.zeros(parameters))
            update = problem.delta(model, pool, row(batches, place)[0])
            return put(workspace, part["train_to"][place], update)

        def train_many(group: jax.Array, workspace: jax.Array) -> jax.Array:
            places = group * shape.width + jnp.arange(shape.width)
            models = workspace[part["train_from"][places]]
            updates = jax.vmap(lambda model, rows: problem.delta(model, pool, rows))(models, row(batches, group))
            return workspace.at[part["train_to"][places]].set(updates)

        def play_group(group: jax.Array, state: State) -> State:
            workspace, largest = state
            combines, trainings = part["group_combines"], part["trains"][group]
            workspace = jax.lax.fori_loop(combines[group], combines[group + 1], combine, workspace)
            # A loop of no or one turn, not a condition, which would copy the workspace. It is copied, too, if an update
            # is looked at in the loop that makes it. And what goes on in a turn must depend on its number: otherwise it
            # is done before the loop, with too much else that is ready there.
            if shape.width == 1:
                workspace = jax.lax.fori_loop(group, group + trainings, train_one, workspace)
            else:
                workspace = jax.lax.fori_loop(group, group + jnp.minimum(trainings, 1), train_many, workspace)
            first = group * shape.width
            look = partial(look_at, workspace, part["train_to"])
            return workspace, jax.lax.fori_loop(first, first + trainings, look, largest)

        def look_at(workspace: jax.Array, rows: jax.Array, index: jax.Array, largest: jax.Array) -> jax.Array:
            bits = jax.lax.bitcast_convert_type(row(workspace, rows[index]), jnp.int32)
            return jnp.maximum(largest, (bits & 0x7FFF_FFFF).max())

        assert workspace.shape == (shape.rows + 1, parameters)
        workspace = jax.lax.fori_loop(0, fetches, fetch, workspace)
        workspace, largest = jax.lax.fori_loop(0, groups, play_group, (workspace, jnp.int32(0)))
        return workspace, jax.lax.fori_loop(0, kept, partial(look_at, workspace, jnp.arange(shape.rows)), largest)

    return jax.jit(play, donate_argnums=0, compiler_options=COMPILER_OPTIONS)
