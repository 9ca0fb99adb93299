"""The shipped Hydra configuration groups: YAML files only, composed by ``matmill.compose``."""
