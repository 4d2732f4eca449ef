"""NVIDIA CUDA for omni-platforms."""
