"""What a model learns from: text, images, the deterministic order of samples, and small sample sets."""
