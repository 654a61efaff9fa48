"""The compiled program: one XLA call plays one block in a lane's workspace, which it is given and gives back."""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp

from dracofl.compute.blocks import Shape
from dracofl.compute.problem import COMPILER_OPTIONS, Problem

Program: TypeAlias = jax.stages.Wrapped

_TERMS_AT_ONCE = 4


def compile_program(problem: Problem, shape: Shape) -> Program:
    """(workspace, store, pool, code, weights, batches) -> workspace, the old one's memory used again.

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
    ) -> jax.Array:
        part = {name: code[section] for name, section in sections.items()}
        fetches, groups = part["counts"][0], part["counts"][1]
        # The compiler would fuse a product and the sum it goes into, and round once where NumPy rounds twice. It may
        # fuse the product with this instead, which is -0 and changes no number, but the compiler cannot know. So this
        # executor's bits are the reference executor's.
        nothing = weights[shape.terms]

        def fetch(index: jax.Array, workspace: jax.Array) -> jax.Array:
            return put(workspace, part["fetch_to"][index], row(store, part["fetch_from"][index]))

        def combine(index: jax.Array, workspace: jax.Array) -> jax.Array:
            first, end = part["combine_terms"][index], part["combine_terms"][index + 1]

            def add(term: jax.Array, total: jax.Array) -> jax.Array:
                product = weights[term] * row(workspace, part["term_rows"][term]) + nothing
                return total + product

            def add_four(four: jax.Array, total: jax.Array) -> jax.Array:
                for place in range(_TERMS_AT_ONCE):
                    total = add(first + 1 + _TERMS_AT_ONCE * four + place, total)
                return total

            # Still one after the other, but the sum so far is read and written once for several.
            fours = (end - first - 1) // _TERMS_AT_ONCE
            total = weights[first] * row(workspace, part["term_rows"][first])
            total = jax.lax.fori_loop(0, fours, add_four, total)
            total = jax.lax.fori_loop(first + 1 + _TERMS_AT_ONCE * fours, end, add, total)
            return put(workspace, part["combine_to"][index], total)

        def train_one(place: jax.Array, batch: jax.Array, workspace: jax.Array) -> jax.Array:
            update = problem.delta(row(workspace, part["train_from"][place]), pool, batch)
            return put(workspace, part["train_to"][place], update)

        def train_many(first: jax.Array, batch: jax.Array, workspace: jax.Array) -> jax.Array:
            places = first + jnp.arange(shape.width)
            models = workspace[part["train_from"][places]]
            updates = jax.vmap(lambda model, rows: problem.delta(model, pool, rows))(models, batch)
            return workspace.at[part["train_to"][places]].set(updates)

        def play_group(group: jax.Array, workspace: jax.Array) -> jax.Array:
            first, end = part["group_combines"][group], part["group_combines"][group + 1]
            workspace = jax.lax.fori_loop(first, end, combine, workspace)
            batch = row(batches, group)

            def train(_: int, workspace: jax.Array) -> jax.Array:
                if shape.width == 1:
                    return train_one(group, batch[0], workspace)
                return train_many(group * shape.width, batch, workspace)

            # A loop of no or one turn, not a condition, which would copy the workspace.
            played: jax.Array = jax.lax.fori_loop(0, part["trains"][group], train, workspace)
            return played

        assert workspace.shape == (shape.rows + 1, parameters)
        workspace = jax.lax.fori_loop(0, fetches, fetch, workspace)
        played: jax.Array = jax.lax.fori_loop(0, groups, play_group, workspace)
        return played

    return jax.jit(play, donate_argnums=0, compiler_options=COMPILER_OPTIONS)
