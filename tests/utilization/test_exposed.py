"""Exposed communication by hand-made profiles."""

import random

import pytest

from utilization.exposed import Activity, difference, exposed_nanoseconds, total, union


def test_union_joins_what_touches_and_drops_what_is_empty() -> None:
    """Unsorted, nested, touching, equal and empty intervals are the same moments once."""
    assert union([(8, 9), (1, 3), (3, 4), (2, 3), (6, 6), (1, 3)]) == [(1, 4), (8, 9)]
    assert union([]) == []


def test_difference_cuts_holes() -> None:
    """A hole inside, one over the edge, one that covers all, and one that touches."""
    assert difference([(0, 10)], [(2, 3), (5, 6)]) == [(0, 2), (3, 5), (6, 10)]
    assert difference([(0, 10), (20, 30)], [(8, 22)]) == [(0, 8), (22, 30)]
    assert difference([(3, 4)], [(0, 10)]) == []
    assert difference([(3, 4)], [(0, 3), (4, 9)]) == [(3, 4)]
    assert difference([(0, 4)], []) == [(0, 4)]


@pytest.mark.parametrize("seed", range(50))
def test_intervals_are_sets_of_moments(seed: int) -> None:
    """Against sets of whole nanoseconds, for random intervals."""
    dice = random.Random(seed)
    one, two = ([(b, b + dice.randint(0, 9)) for b in dice.choices(range(40), k=8)] for _ in range(2))
    moments = [{t for begin, end in some for t in range(begin, end)} for some in (one, two)]
    assert total(union(one)) == len(moments[0])
    left = difference(union(one), union(two))
    assert {t for begin, end in left for t in range(begin, end)} == moments[0] - moments[1]


def gpu(name: str, begin: int, end: int) -> Activity:
    return Activity(name, begin, end, on_device=True)


def test_gpu_hides_communication_behind_any_other_work() -> None:
    """An all-reduce of 100 ns beside a matmul of 60 and a copy of 10 is exposed for 30; waiting for peers is in it."""
    activities = [
        gpu("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 0, 100),
        gpu("ampere_bf16_s16816gemm", 20, 80),
        gpu("Memcpy DtoD (Device -> Device)", 80, 90),
        gpu("vectorized_elementwise_kernel", 200, 300),
        Activity("aten::mm", 0, 1000),  # the host is ahead: it hides nothing
    ]
    assert exposed_nanoseconds(activities) == 30


def test_gpu_without_collectives_exposes_nothing() -> None:
    """Work alone."""
    assert exposed_nanoseconds([gpu("gemm", 0, 10), Activity("gloo:all_reduce", 0, 99, thread=2)]) == 0


def test_cpu_waits_between_operators() -> None:
    """gloo is in flight for 100 ns, of which operators hide 40; waiting, spans and gloo's own operators hide none."""
    activities = [
        Activity("gloo:all_reduce", 0, 100, thread=7),
        Activity("aten::add_", 10, 90, thread=7),  # gloo sums on its own thread
        Activity("aten::mm", 0, 30, thread=1),
        Activity("aten::mul", 20, 35, thread=1),
        Activity("mylib::kernel", 40, 45, thread=1),
        Activity("FSDP::pre_forward (0)", 0, 100, thread=1),
        Activity("autograd::engine::evaluate_function: AddmmBackward0", 0, 100, thread=1),
        Activity("c10d::allreduce_", 50, 60, thread=1),
        Activity("_c10d_functional::wait_tensor", 60, 90, thread=1),
        Activity("torch::distributed::reducer::mul_out", 0, 100, thread=1),
        Activity("Optimizer.step#SGD.step", 0, 100, thread=1),
    ]
    assert exposed_nanoseconds(activities) == 60


def test_cpu_compiled_regions_compute_unless_they_wait() -> None:
    """Inside a compiled region no operator is seen; its own waiting for a collective is not computing."""
    activities = [
        Activity("gloo:all_gather", 0, 100, thread=7),
        Activity("Torch-Compiled Region: 0/0", 0, 80, thread=1),
        Activity("_c10d_functional::wait_tensor", 50, 70, thread=1),
    ]
    assert exposed_nanoseconds(activities) == 40


def test_nothing_recorded() -> None:
    """A step without collectives exposes nothing."""
    assert exposed_nanoseconds([]) == 0
    assert exposed_nanoseconds([Activity("aten::mm", 0, 10)]) == 0
