"""Exact toy computations for masked-diffusion language models."""
