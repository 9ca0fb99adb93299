"""What training costs: FLOPs, hardware peaks, time by phase, goodput. Pure functions without Lightning."""
