"""What the tensor-parallel plans of several networks need besides torch's own styles.

A plan, `{module name: ParallelStyle}`, goes to `torch.distributed.tensor.parallel.parallelize_module`; the network may
be on the meta device. Every parameter becomes a DTensor on the tensor mesh, those that are not cut too: then fused
optimizers and FSDP2 meet one kind of parameter.
"""

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle


class LocalForward(ParallelStyle):
    """Distributes the parameters that a module owns itself, and lets its forward compute on this device's parts.

    The module's class becomes `local_class`, a subclass that takes `.to_local()` of its parameters (`fully_shard` gives
    modules a new class in the same way): names and hooks stay, and gradients come back as DTensors of `placement`.
    """

    def __init__(self, placement: Placement, local_class: type[nn.Module]) -> None:
        super().__init__()
        self.placement, self.local_class = placement, local_class

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if not issubclass(self.local_class, type(module)):
            raise TypeError(f"{self.local_class.__name__} is no kind of {type(module).__name__}")
        for name, parameter in list(module.named_parameters(recurse=False)):
            parts = distribute_tensor(parameter, device_mesh, [self.placement], src_data_rank=self.src_data_rank)
            module.register_parameter(name, nn.Parameter(parts, requires_grad=parameter.requires_grad))
        module.__class__ = self.local_class
        return module


class LocalLinear(nn.Linear):
    """A linear layer that computes on this device's part of its parameters."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features of this device's part)."""
        return nn.functional.linear(input, local(self.weight), None if self.bias is None else local(self.bias))


def local(parameter: Tensor) -> Tensor:
    """This device's part of a parameter."""
    assert isinstance(parameter, DTensor)
    part: Tensor = parameter.to_local()
    return part


def whole_input(x: Tensor, mesh: DeviceMesh, placement: Placement) -> Tensor:
    """The whole of `x`, of which each device holds what `placement` says, for layers that use it differently on each.

    The gradient that comes back on one device is only that of its own use, so the backward pass sums over the devices:
    a reduce-scatter where the forward gathers shards, an all-reduce where it finds `x` whole already.
    """
    parts = DTensor.from_local(x, mesh, [placement]).redistribute(placements=[Replicate()])
    # Without the placement of the gradients torch takes them for whole: no error, only wrong gradients below.
    whole: Tensor = parts.to_local(grad_placements=[Partial()])
    return whole
