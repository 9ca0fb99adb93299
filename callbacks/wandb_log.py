"""Weights & Biases, by choice: works offline without a login, and a resumed run goes on in the same wandb run."""

import os
import secrets
from pathlib import Path
from typing import Literal

from lightning.pytorch.loggers import WandbLogger


class Wandb(WandbLogger):
    """A wandb run whose id is kept in the run directory (`wandb_id`), so that every resume continues it."""

    def __init__(
        self,
        *,
        save_dir: str,
        project: str = "matmill",
        name: str | None = None,
        mode: Literal["auto", "online", "offline"] = "auto",
    ) -> None:
        """`mode` auto: online where an API key is known (environment or ~/.netrc), offline elsewhere."""
        offline = mode == "offline" or (mode == "auto" and not _logged_in())
        super().__init__(
            save_dir=save_dir,
            project=project,
            name=name,
            id=_kept_id(Path(save_dir) / "wandb_id"),
            resume=None if offline else "allow",
            offline=offline,
        )


def _kept_id(file: Path) -> str:
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.tmp")
        temporary.write_text(secrets.token_hex(4) + "\n")
        os.replace(temporary, file)
    return file.read_text().strip()


def _logged_in() -> bool:
    if os.environ.get("WANDB_MODE"):
        return os.environ["WANDB_MODE"] == "online"
    if os.environ.get("WANDB_API_KEY"):
        return True
    import wandb

    return bool(wandb.api.api_key)
