"""Optimizers for weights and state of every precision on every mesh; `conf/optimizer/` names them."""

from lightning_modules.optimizers.factories import adamw, adamw_4bit, adamw_8bit, adamw_8bit_bnb, muon, sgd

__all__ = ["adamw", "adamw_4bit", "adamw_8bit", "adamw_8bit_bnb", "muon", "sgd"]
