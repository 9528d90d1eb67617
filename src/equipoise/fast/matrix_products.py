"""Matrix products for the small matrices of these networks, by the widest vectors that the processor has.

General libraries are made for large matrices: at 512 rows and 64 units they take two to three times as long, and each
call of them costs as much as a small product. Here a tile of the result stays in registers during a loop over a block
of the inner axis. The tile is generated as LLVM code, since the compiler makes no such tile from a loop in Python.
"""

from itertools import chain, repeat
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from equipoise.fast.compilation import compiled, inlined

_FEATURES = llvm.get_host_cpu_features()
_VECTOR = 64 if _FEATURES.get("avx512f") else 32 if _FEATURES.get("avx") else 16  # bytes
_ROWS = 4 if _VECTOR == 32 else 8  # of a tile; processors with vectors of 32 bytes have half as many registers
_INNER = 256  # length of a block of the inner axis, so that what tiles read repeatedly stays in the fastest cache
_WORD, _INDEX = ir.IntType(64), ir.IntType(32)


def _make_tile_product(n_rows: int, n_vectors: int, size: int) -> Any:
    """Generate a function for compiled code that adds `A B` to a tile of `C`.

    All three matrices are flat arrays. The function takes the index of each one's first element, the steps from row to
    row (of C and A) and along the inner axis (of A and B), and the length of the inner axis.

    Args:
        n_rows: Rows of the tile.
        n_vectors: Vectors per row of the tile.
        size: Bytes of a vector.
    """

    @intrinsic
    def add_tile(typingctx, C, c_start, c_row, A, a_start, a_row, a_inner, B, b_start, b_inner, n_inner):
        if not C.dtype == A.dtype == B.dtype or {C.layout, A.layout, B.layout} != {"C"}:
            raise TypingError("A product needs three contiguous arrays of one kind of numbers.")
        word = types.intp
        signature = types.void(C, word, word, A, word, word, word, B, word, word, word)

        def generate(context, builder, signature, args):
            number = signature.args[0].dtype
            vector = ir.VectorType(context.get_value_type(number), max(1, 8 * size // number.bitwidth))
            memory = {i: context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 3, 7)}
            C, A, B = (builder.gep(data, [args[i + 1]]) for i, data in memory.items())
            c_row, a_row, a_inner, b_inner, n_inner = (args[i] for i in (2, 5, 6, 9, 10))
            rows = [builder.gep(A, [builder.mul(a_row, _WORD(r))]) for r in range(n_rows)]
            for r, row in enumerate(_generate_sums(builder, vector, rows, a_inner, B, b_inner, n_inner, n_vectors)):
                start = builder.gep(C, [builder.mul(c_row, _WORD(r))])
                for v, product in enumerate(row):
                    element = _vector_at(builder, vector, start, v)
                    builder.store(builder.fadd(builder.load(element, align=4), product), element, align=4)
            return context.get_dummy_value()

        return signature, generate

    return add_tile


def _generate_sums(builder, vector, rows, a_inner, B, b_inner, n_inner, n_vectors) -> list[list]:
    """Generate the loop over the inner axis, which leaves `Σ_k A_rk B_k` of all rows and vectors in registers."""
    name = f"llvm.fmuladd.v{vector.count}f{32 if isinstance(vector.element, ir.FloatType) else 64}"
    add_product = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
    before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(_WORD)
    sums = [[builder.phi(vector) for _ in range(n_vectors)] for _ in rows]
    start, along = builder.gep(B, [builder.mul(k, b_inner)]), builder.mul(k, a_inner)
    right = [builder.load(_vector_at(builder, vector, start, v), align=4) for v in range(n_vectors)]
    lefts = [_broadcast(builder, vector, builder.load(builder.gep(row, [along]))) for row in rows]
    new = [
        [builder.call(add_product, [left, *pair]) for pair in zip(right, row, strict=True)]
        for left, row in zip(lefts, sums, strict=True)
    ]
    following, zero = builder.add(k, _WORD(1)), ir.Constant(vector, [0.0] * vector.count)
    totals = zip(chain(*sums), repeat(zero), chain(*new), strict=False)
    for phi, first, then in ((k, _WORD(0), following), *totals):
        phi.add_incoming(first, before)
        phi.add_incoming(then, loop)
    builder.cbranch(builder.icmp_signed("<", following, n_inner), loop, after)
    builder.position_at_end(after)
    return new


def _vector_at(builder, vector, start, v):
    """Generate the address of vector `v` from `start` on."""
    return builder.bitcast(builder.gep(start, [_WORD(v * vector.count)]), vector.as_pointer())


def _broadcast(builder, vector, value):
    """Generate a vector whose elements all have one value."""
    nothing = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(nothing, value, _INDEX(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_INDEX, vector.count), [0] * vector.count))


def _make_column_product(n_vectors: int, size: int) -> Any:
    """Make a function for compiled code that adds `A B` to consecutive columns of `C`, by tiles and then row by row.

    Args:
        n_vectors, size: Number of vectors that hold the columns, and bytes of each.
    """
    tile, row = _make_tile_product(_ROWS, n_vectors, size), _make_tile_product(1, n_vectors, size)

    @inlined
    def add(C, column, n_columns, A, a_row, a_inner, B, start, n_rows, n_inner):
        b = start * n_columns + column
        tiled = n_rows - n_rows % _ROWS
        for i in range(0, tiled, _ROWS):
            c, a = i * n_columns + column, i * a_row + start * a_inner
            tile(C, c, n_columns, A, a, a_row, a_inner, B, b, n_columns, n_inner)
        for i in range(tiled, n_rows):
            c, a = i * n_columns + column, i * a_row + start * a_inner
            row(C, c, n_columns, A, a, a_row, a_inner, B, b, n_columns, n_inner)

    return add


_add_two, _add_vector = _make_column_product(2, _VECTOR), _make_column_product(1, _VECTOR)
_add_half, _add_fourth = _make_column_product(1, _VECTOR // 2), _make_column_product(1, _VECTOR // 4)
_add_number = _make_column_product(1, 1)


@compiled
def multiply(C, A, transposed, B, n_rows, n_inner, n_columns):
    """Compute the matrix product `C = A B`.

    Args:
        C: Filled, `n_rows` × `n_columns`, row by row.
        A, transposed, B, n_rows, n_inner, n_columns: As in `add_product`.
    """
    C[:] = 0
    add_product(C, A, transposed, B, n_rows, n_inner, n_columns)


@compiled
def add_product(C, A, transposed, B, n_rows, n_inner, n_columns):
    """Add the matrix product `A B` of flat contiguous arrays of one dtype, float32 or float64, to `C`.

    Args:
        C: Added to, `n_rows` × `n_columns`, row by row.
        A: `n_rows` × `n_inner`, row by row, or column by column if `transposed`.
        transposed: Whether A is stored column by column.
        B: `n_inner` × `n_columns`, row by row.
        n_rows, n_inner, n_columns: Sizes of the matrices.
    """
    a_row, a_inner = (1, n_rows) if transposed else (n_inner, 1)
    lanes = _VECTOR // C.itemsize
    for start in range(0, n_inner, _INNER):
        inner, column = min(_INNER, n_inner - start), 0
        while column < n_columns:
            left = n_columns - column
            if left >= 2 * lanes:
                _add_two(C, column, n_columns, A, a_row, a_inner, B, start, n_rows, inner)
                column += 2 * lanes
            elif left >= lanes:
                _add_vector(C, column, n_columns, A, a_row, a_inner, B, start, n_rows, inner)
                column += lanes
            elif left >= lanes // 2 > 1:
                _add_half(C, column, n_columns, A, a_row, a_inner, B, start, n_rows, inner)
                column += lanes // 2
            elif left >= lanes // 4 > 1:
                _add_fourth(C, column, n_columns, A, a_row, a_inner, B, start, n_rows, inner)
                column += lanes // 4
            else:
                _add_number(C, column, n_columns, A, a_row, a_inner, B, start, n_rows, inner)
                column += 1
