"""Weights & Biases, by choice: works offline without a login, and a resumed run goes on in the same wandb run."""

import os
import secrets
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.loggers.logger import rank_zero_experiment
from omegaconf import OmegaConf


class Wandb(WandbLogger):
    """A wandb run whose id is kept in the run directory (`wandb_id`), so that every resume continues it.

    It is told the run's config.yaml, by which runs can be compared.
    """

    def __init__(
        self,
        *,
        save_dir: str,
        project: str = "matmill",
        name: str | None = None,
        group: str | None = None,
        mode: Literal["auto", "online", "offline"] = "auto",
    ) -> None:
        """`mode` auto: online where an API key is known (environment or ~/.netrc), offline elsewhere.

        `group`: of runs that belong together; None: what WANDB_RUN_GROUP says, by which a sweep tells trials its name.
        """
        offline = mode == "offline" or (mode == "auto" and not _logged_in())
        self._config_file = Path(save_dir) / "config.yaml"
        super().__init__(
            save_dir=save_dir,
            project=project,
            name=name,
            group=group,
            id=_kept_id(Path(save_dir) / "wandb_id"),
            resume=None if offline else "allow",
            offline=offline,
        )

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The wandb run."""
        is_new = self._experiment is None
        run = super().experiment
        if is_new and self._config_file.is_file():
            run.config.update(OmegaConf.to_container(OmegaConf.load(self._config_file)), allow_val_change=True)
        return run


def _kept_id(file: Path) -> str:
    """The id in `file`; a new run's is the one that `wandb agent` has given it, or made up."""
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.tmp")
        temporary.write_text((os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)) + "\n")
        os.replace(temporary, file)
    return file.read_text().strip()


def _logged_in() -> bool:
    if os.environ.get("WANDB_MODE"):
        return os.environ["WANDB_MODE"] == "online"
    if os.environ.get("WANDB_API_KEY"):
        return True
    import wandb

    return bool(wandb.api.api_key)
