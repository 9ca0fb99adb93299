"""What an optimizer's state takes."""

from torch import Tensor
from torch.optim import Optimizer

from lightning_modules.optimizers.base import parameters_of
from lightning_modules.optimizers.shards import local


def state_bytes(optimizer: Optimizer) -> int:
    """Bytes of the optimizer's state on this process, whatever it is made of; 0 before the first step."""
    tensors = (value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor))
    return sum(part.numel() * part.element_size() for part in map(local, tensors))


def state_bytes_per_parameter(optimizer: Optimizer) -> float:
    """`state_bytes` over the number of trained parameters whose state this process keeps."""
    return state_bytes(optimizer) / sum(local(parameter).numel() for parameter in parameters_of(optimizer.param_groups))
