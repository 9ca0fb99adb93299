"""The part of a tensor that this process holds, whether the tensor is distributed or not."""

from torch import Tensor
from torch.distributed.tensor import DTensor


def local_part(tensor: Tensor) -> Tensor:
    """This process's shard of a DTensor; any other tensor itself. No copy."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def with_local_part(tensor: Tensor, local: Tensor) -> Tensor:
    """The same tensor with another shard of the same shape, which may lie on another device."""
    # `DTensor.from_local` would move the shard to the mesh's devices.
    return DTensor(local, tensor._spec, requires_grad=False) if isinstance(tensor, DTensor) else local


def unwrapped(tensor: Tensor) -> Tensor:
    """The numbers in the tensor, in the same memory, without a class around them.

    The wrapper by which fp8 training gathers shards in 8 bits would be stored with its class, and a process could read
    the checkpoint only after importing it. A class that holds numbers in another format (quantized) stays.
    """
    local = local_part(tensor)
    flatten = getattr(local, "__tensor_flatten__", None)
    if flatten is None:
        return tensor
    inner: Tensor = getattr(local, flatten()[0][0])
    same_numbers = (inner.shape, inner.dtype) == (local.shape, local.dtype)
    return with_local_part(tensor, inner) if same_numbers else tensor
