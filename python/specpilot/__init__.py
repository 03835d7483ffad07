"""SpecPilot: lossless speculative decoding."""
