"""float16 products with dynamic loss scaling (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2)."""

import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from precision.autocast import Autocast, gathered_in

HOPELESS_STEPS = 10
"""So many steps in a row without finite gradients at the smallest scale end the run: scaling cannot help any more."""


class FP16Mixed(Autocast):
    """Weights, gradients and optimizer state in float32; matrix products under autocast in float16.

    float16 has no gradients below 6e-8, so the loss is scaled up before the backward pass and the gradients down after
    it. When they overflow the step is skipped and the scale halved; after `growth_interval` good steps in a row it
    doubles. Unlike `torch.amp.GradScaler` the decision is made on the norm of all gradients, which every process knows,
    so it works on any device and any mesh.
    """

    name = "fp16_mixed"
    precision = "16-mixed"
    multiplies_in = "fp16"
    dtype = torch.float16
    needs_gradient_norm = True
    shard_policy = gathered_in(torch.float16)

    def __init__(
        self,
        *,
        device_type: str = "cpu",
        initial_scale: Annotated[float, Gt(0)] = 2.0**16,
        growth_interval: Annotated[int, Ge(1)] = 2000,
        minimum_scale: Annotated[float, Gt(0)] = 1.0,
    ) -> None:
        """Scales are powers of two, so that scaling rounds nothing.

        Raises:
            ValueError: a scale is no power of two, or the first one is below the smallest.
        """
        super().__init__(device_type=device_type)
        for key, value in (("initial_scale", initial_scale), ("minimum_scale", minimum_scale)):
            if math.frexp(value)[0] != 0.5:
                raise ValueError(f"{key}={value} is no power of two: scaling would round gradients")
        if initial_scale < minimum_scale:
            raise ValueError(f"initial_scale={initial_scale} is below minimum_scale={minimum_scale}")
        self.growth_interval, self.minimum_scale = growth_interval, minimum_scale
        self.scale = float(initial_scale)
        self.skipped_steps = 0
        self._good_steps = 0  # in a row, since the scale changed
        self._hopeless_steps = 0  # in a row, at the smallest scale
        self._scaled = False

    def pre_backward(self, tensor: Tensor, module: Any) -> Tensor:
        """Lightning's hook: scale the loss up."""
        self._scaled = True
        return super().pre_backward(tensor * self.scale, module)

    @torch.no_grad()
    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divide the gradients by the scale, each process its own parts of them."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        local = [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients]
        if local:
            torch._foreach_mul_(local, 1 / self.scale)
        self._scaled = False

    def judge(self, gradient_norm: Tensor) -> None:
        """Skip the step if the norm is not finite, and adapt the scale.

        Raises:
            ArithmeticError: the smallest scale does not help either.
        """
        self.skipped = not math.isfinite(float(gradient_norm))
        if self.skipped:
            self._shrink()
            return
        self._hopeless_steps = 0
        self._good_steps += 1
        if self._good_steps == self.growth_interval:
            self.scale *= 2
            self._good_steps = 0

    def _shrink(self) -> None:
        self.skipped_steps += 1
        self._good_steps = 0
        if self.scale > self.minimum_scale:
            self.scale /= 2
            return
        self._hopeless_steps += 1
        if self._hopeless_steps >= HOPELESS_STEPS:
            raise ArithmeticError(
                f"gradients are not finite for {HOPELESS_STEPS} steps in a row, even at the smallest loss scale "
                f"{self.minimum_scale:g}: lower optimizer.lr, set trainer.gradient_clip_norm, or use "
                "precision=bf16_mixed, whose numbers do not overflow at 65504"
            )

    def optimizer_step(  # type: ignore[override]
        self, optimizer: Any, model: Any, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """Step unless the step is skipped; a module that does not unscale and judge by itself has it done here."""
        result = closure()
        if self._scaled:
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            self.unscale(parameters)
            self.judge(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
        super().optimizer_step(optimizer, model, lambda: result, **kwargs)
        return result

    def metrics(self) -> dict[str, float]:
        """The scale of the next step and how many steps were skipped so far."""
        return {"train/loss_scale": self.scale, "train/skipped_steps": float(self.skipped_steps)}

    def state_dict(self) -> dict[str, Any]:
        """Lightning's hook: what a resumed run needs to go on with the same scale."""
        names = ("scale", "skipped_steps", "_good_steps", "_hopeless_steps")
        return {name.removeprefix("_"): getattr(self, name) for name in names}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Lightning's hook: go on where the checkpoint was written."""
        self.scale, self.skipped_steps = state_dict["scale"], state_dict["skipped_steps"]
        self._good_steps, self._hopeless_steps = state_dict["good_steps"], state_dict["hopeless_steps"]
