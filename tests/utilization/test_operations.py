"""Operations: each distinct one once, with what it computes and moves, and how often."""

import torch
import torch.nn.functional as F

from utilization.operations import Operation, Operations, TensorSpec, total_bytes
from utilization.tape import Tape


def _record(function: object) -> dict[str, Operation]:
    operations = Operations()
    with Tape([operations]):
        function()  # type: ignore[operator]
    return {operation.name: operation for operation in operations.found.values()}


def test_equal_calls_are_one_operation_and_other_shapes_another() -> None:
    operations = Operations()
    a, b, c = torch.ones(4, 8), torch.ones(8, 2), torch.ones(8, 3)
    with Tape([operations]):
        a @ b
        a @ b
        a @ c
    assert [o.count for o in operations.found.values() if o.name == "mm"] == [2, 1]


def test_a_product_moves_its_operands_and_its_result() -> None:
    a, b = torch.ones(4, 8), torch.ones(8, 2)
    found = _record(lambda: a @ b)["mm"]
    assert (found.kind, found.flops, found.bytes) == ("matmul", 2 * 4 * 8 * 2, 4 * (4 * 8 + 8 * 2 + 4 * 2))


def test_views_and_allocations_move_nothing() -> None:
    x = torch.ones(4, 8)
    found = _record(lambda: (x.t(), torch.empty(5)))
    assert {o.kind for o in found.values()} == {"view"}
    assert total_bytes(found.values()) == 0


def test_a_look_up_moves_the_rows_it_reads_and_not_the_table() -> None:
    table, index = torch.ones(1000, 16), torch.tensor([1, 2, 3])
    found = _record(lambda: F.embedding(index, table))["embedding"]
    assert found.bytes == 2 * 3 * 16 * 4 + 3 * 8


def test_an_expanded_tensor_is_stored_once() -> None:
    assert TensorSpec((1000, 8), (0, 1), torch.float32).bytes == 32
    assert TensorSpec((0, 8), (8, 1), torch.float32).bytes == 0


def test_a_weight_counts_calls_that_are_not_run() -> None:
    operations = Operations()
    x = torch.ones(3)
    with Tape([operations]):
        operations.weight = 5.0
        x + x
        operations.weight = 1.0
        x + x
    assert next(iter(operations.found.values())).count == 6
